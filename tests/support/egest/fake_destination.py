"""A raw HTTP server as a destination: keeps all requests, and can fail in any way."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import orjson

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class ReceivedRequest:
    """A request, and the time of its arrival (monotonic seconds)."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    at_s: float
    connection: int

    @property
    def ids(self) -> list[str]:
        """The ids of its events, whatever the format."""
        if "ce-id" in self.headers:
            return [self.headers["ce-id"]]
        data = orjson.loads(self.body)
        return [event["id"] for event in (data if isinstance(data, list) else [data])]


class Reset(Exception):
    """Reset the connection."""


Reply: TypeAlias = Callable[[ReceivedRequest], Awaitable[bytes | None]]
"""The bytes of the answer; None: no answer, ever."""


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status} Because", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


async def fine(_: ReceivedRequest) -> bytes | None:
    return OK


@dataclass
class FakeDestination:
    """Listens on a port; `reply` may be replaced at any time."""

    reply: Reply = fine
    requests: list[ReceivedRequest] = field(default_factory=list)
    connections: int = 0
    running: int = 0
    most: int = 0
    url: str = ""
    closes: bool = False

    @property
    def ids(self) -> list[str]:
        return [event_id for request in self.requests for event_id in request.ids]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = self.connections
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.split("\r\n")
                method, target, _ = first.split(" ")
                headers = {
                    name.lower(): value for name, value in (line.split(": ", 1) for line in lines if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                request = ReceivedRequest(method, target, headers, body, time.monotonic(), connection)
                self.requests.append(request)
                self.running += 1
                self.most = max(self.most, self.running)
                try:
                    reply = await self.reply(request)
                finally:
                    self.running -= 1
                if reply is None:
                    await asyncio.sleep(3600)
                    return
                writer.write(reply)
                await writer.drain()
                if self.closes or b"Connection: close" in reply:
                    return
        except Reset:
            writer.transport.abort()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def destination(
    reply: Reply = fine, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[FakeDestination]:
    fake_destination = FakeDestination(reply)
    async with serving(fake_destination.serve, port=port, tls=tls) as number:
        fake_destination.url = f"http{'s' if tls else ''}://127.0.0.1:{number}/in"
        yield fake_destination


@contextlib.asynccontextmanager
async def serving(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serve each connection to a port of the loopback, which is yielded; those that are open at the end are cut."""
    tasks: set[asyncio.Future[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
