"""A name that the test binds, and a server that counts who reaches it."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import uvloop

NAME = "bound.example"
"""No resolver but the one of this process knows it: a client that resolves it by itself reaches nothing."""


class BoundName:
    """The addresses to which `NAME` resolves in this process.

    Attributes:
        addresses: of the next answers; the last stays.
        asked: how often it was resolved.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses = ["127.0.0.1"]
        self.asked = 0
        self._resolve = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._answer)

        async def answer(_: uvloop.Loop, host: Any, port: Any, **options: Any) -> Any:
            return await asyncio.to_thread(self._answer, host, port, **options)

        monkeypatch.setattr(uvloop.Loop, "getaddrinfo", answer)

    def _answer(self, host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        if host != NAME:
            return self._resolve(host, port, *arguments, **options)
        self.asked += 1
        address = self.addresses[0] if len(self.addresses) == 1 else self.addresses.pop(0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]


class CountingServer:
    """Answers 404 to every request.

    Attributes:
        port: on loopback.
        requests: their methods and paths.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                server.requests.append(f"{self.command} {self.path}")
                self.send_response(404)
                self.send_header("content-length", "0")
                self.end_headers()

            do_GET = do_HEAD = do_POST = _answer  # noqa: N815 - names of the library

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_port


@contextmanager
def counting_server() -> Iterator[CountingServer]:
    """A server that runs while the block does."""
    server = CountingServer()
    thread = threading.Thread(target=server.http.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        thread.join()
        server.http.server_close()
