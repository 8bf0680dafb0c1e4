"""Asks the worker in this container for its connectors; it knows them some seconds after its port is open."""

import base64
import os
import socket
import sys
from pathlib import Path

CONNECTOR = b"io.debezium.connector.postgresql.PostgresConnector"
answer = b""
_, user, password = Path(os.environ["HIFI_CONNECT_CREDENTIALS_FILE"]).read_text().split()
login = base64.b64encode(f"{user}:{password}".encode())
try:
    with socket.create_connection(("127.0.0.1", 8083), timeout=2) as connection:
        connection.settimeout(2)
        head = b"GET /connector-plugins HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: Basic " + login
        connection.sendall(head + b"\r\n\r\n")
        while part := connection.recv(65536):
            answer += part
except OSError as error:
    sys.exit(f"the REST API gives no answer yet: {error}")
sys.exit(None if CONNECTOR in answer else "Debezium's connector is not known yet")
