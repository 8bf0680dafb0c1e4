"""A server accepts many connections in one turn of the event loop, and goes on after an error."""

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from hifi.runtime.http import server
from hifi.runtime.http.listener import accepting


class Protocol(asyncio.Protocol):
    def __init__(self, transports: list[asyncio.BaseTransport]) -> None:
        self._transports = transports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transports.append(transport)


async def test_many_waiting_connections_are_accepted_within_a_few_turns() -> None:
    listener = server.listen("127.0.0.1", 0)
    transports: list[asyncio.BaseTransport] = []
    with contextlib.ExitStack() as stack:
        stack.callback(listener.close)
        for _ in range(200):
            stack.enter_context(socket.create_connection(listener.getsockname(), timeout=5))
        with accepting(listener, lambda: Protocol(transports)):
            iterations = 0
            while len(transports) < 200 and iterations < 30:
                await asyncio.sleep(0)
                iterations += 1
        assert len(transports) == 200, f"{len(transports)} after {iterations} turns"
        for transport in transports:
            transport.close()


async def test_without_files_it_accepts_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = server.listen("127.0.0.1", 0)
    transports: list[asyncio.BaseTransport] = []
    calls = 0

    class Exhausted:
        """The listener of a process that has no free file at first."""

        def __getattr__(self, name: str) -> Any:
            return getattr(listener, name)

        def accept(self) -> Any:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise OSError(24, "Too many open files")
            return listener.accept()

    monkeypatch.setattr("hifi.runtime.http.listener._PAUSE_S", 0.05)
    with contextlib.closing(listener), socket.create_connection(listener.getsockname(), timeout=5):
        with accepting(Exhausted(), lambda: Protocol(transports)):  # type: ignore[arg-type]
            async with asyncio.timeout(5):
                while not transports:
                    await asyncio.sleep(0.01)
        transports[0].close()
    assert calls >= 2
