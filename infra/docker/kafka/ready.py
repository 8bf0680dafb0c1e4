"""Asks the broker in this container which requests it knows (ApiVersions, v0); it answers once it serves clients."""

import socket
import struct
import sys

with socket.create_connection(("127.0.0.1", 9092), timeout=2) as connection:
    connection.settimeout(2)
    connection.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
    answer = b""
    while len(answer) < 10 and (part := connection.recv(4096)):
        answer += part
_, correlation, error = struct.unpack_from(">iih", answer)
sys.exit(correlation != 7 or error != 0)
