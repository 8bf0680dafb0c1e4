"""Asks the service in this container whether it is ready; its reasons become the health check's log.

Only sockets: it runs every few seconds in every container, and starts in some 20 ms.
"""

import os
import socket
import sys

answer = b""
try:
    with socket.create_connection(("127.0.0.1", int(os.environ["HIFI_PORT"])), timeout=2) as connection:
        connection.settimeout(2)
        connection.sendall(b"GET /readyz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        while part := connection.recv(65536):
            answer += part
except OSError as error:
    sys.exit(f"/readyz gives no answer yet: {error}")
head, _, body = answer.partition(b"\r\n\r\n")
sys.stdout.buffer.write(body)
sys.exit(b" 200 " not in head.partition(b"\r\n")[0])
