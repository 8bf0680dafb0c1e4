"""Asks the worker in this container for its connectors; it knows them some seconds after its port is open."""

import socket
import sys

CONNECTOR = b"io.debezium.connector.postgresql.PostgresConnector"
answer = b""
try:
    with socket.create_connection(("127.0.0.1", 8083), timeout=2) as connection:
        connection.settimeout(2)
        connection.sendall(b"GET /connector-plugins HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        while part := connection.recv(65536):
            answer += part
except OSError as error:
    sys.exit(f"the REST API gives no answer yet: {error}")
sys.exit(None if CONNECTOR in answer else "Debezium's connector is not known yet")
