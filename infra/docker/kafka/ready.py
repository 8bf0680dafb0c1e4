"""Asks the broker in this container which requests it knows (ApiVersions, v0); it answers once it serves clients."""

import os
import socket
import ssl
import struct
import sys

security = os.environ.get("KAFKA_SECURITY")
try:
    plain = socket.create_connection(("127.0.0.1", 9092), timeout=2)
    trust = ssl.create_default_context(cafile=f"{security}/ca.pem") if security else None
    with trust.wrap_socket(plain, server_hostname="localhost") if trust else plain as connection:
        connection.settimeout(2)
        connection.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        answer = b""
        while len(answer) < 10 and (part := connection.recv(4096)):
            answer += part
    _, correlation, code = struct.unpack_from(">iih", answer)
except (OSError, struct.error) as error:
    sys.exit(f"port 9092 gives no answer yet: {error}")
sys.exit(correlation != 7 or code != 0)
