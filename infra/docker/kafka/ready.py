"""Asks the broker in this container which requests it knows (ApiVersions, v0); it answers once it serves clients."""

import socket
import struct
import sys

try:
    with socket.create_connection(("127.0.0.1", 9092), timeout=2) as connection:
        connection.settimeout(2)
        connection.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        answer = b""
        while len(answer) < 10 and (part := connection.recv(4096)):
            answer += part
    _, correlation, code = struct.unpack_from(">iih", answer)
except (OSError, struct.error) as error:
    sys.exit(f"port 9092 gives no answer yet: {error}")
sys.exit(correlation != 7 or code != 0)
