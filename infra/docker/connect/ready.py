"""Asks the worker in this container whether it takes requests; it does some seconds after its port is open."""

import base64
import os
import socket
import sys
from pathlib import Path

answer = b""
_, user, password = Path(os.environ["HIFI_CONNECT_CREDENTIALS_FILE"]).read_text().split()
login = base64.b64encode(f"{user}:{password}".encode())
try:
    with socket.create_connection(("127.0.0.1", 8083), timeout=2) as connection:
        connection.settimeout(12)  # the worker tells after 10 s that the thread that does its work does none
        head = b"GET /health HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: Basic " + login
        connection.sendall(head + b"\r\n\r\n")
        while part := connection.recv(65536):
            answer += part
except OSError as error:
    sys.exit(f"the REST API gives no answer: {error}")
sys.exit(None if b" 200 " in answer.partition(b"\r\n")[0] else answer.rpartition(b"\r\n")[2].decode())
