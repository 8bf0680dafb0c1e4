"""Slow, greedy and broken clients get an error response and are disconnected; other clients are not affected."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hifi.runtime.http import limits, server
from hifi.runtime.http.limits import ConnectionLimits

LIMITS = ConnectionLimits(head_bytes=4096, head_s=0.4, request_s=0.4, response_s=0.6, connections=3)


class App:
    """Answers 200 with the number of received bytes, once `gate` is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.disconnects = 0
        self.requests = 0
        self.answer = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        self.requests += 1
        size, has_more = 0, True
        while has_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnects += 1
                return
            size += len(message.get("body", b""))
            has_more = message.get("more_body", False)
        await self.gate.wait()
        body = self.answer or b"%d" % size
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", b"%d" % len(body))],
            }
        )
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def running() -> AsyncIterator[tuple[App, int, list[int]]]:
    app = App()
    refused_statuses: list[int] = []
    sock = server.listen("127.0.0.1", 0)
    async with server.serve(app, sock, drain_s=2, limits=LIMITS, on_refused=refused_statuses.append):
        yield app, sock.getsockname()[1], refused_statuses


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Everything that the server sends until it closes the connection."""
    async with asyncio.timeout(10):
        chunks = []
        with contextlib.suppress(ConnectionResetError):
            while chunk := await reader.read(65536):
                chunks.append(chunk)
        return b"".join(chunks)


async def works(port: int) -> bool:
    async with connected(port) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        return (await until_closed(reader)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "start", [b"", b"\r\n", b"GET", b"GET / HTTP/1.1\r\nhost: x\r\n"], ids=["silent", "lines", "word", "head"]
)
async def test_a_head_that_does_not_come_in_time_is_408(
    running: tuple[App, int, list[int]], start: bytes
) -> None:
    app, port, refused_statuses = running
    async with connected(port) as (reader, writer):
        writer.write(start)
        answer = await until_closed(reader)
    assert answer.startswith(b"HTTP/1.1 408")
    assert (app.requests, refused_statuses) == (0, [408])


async def test_dripping_bytes_do_not_buy_time(running: tuple[App, int, list[int]]) -> None:
    _, port, _ = running
    async with connected(port) as (reader, writer):
        closed = asyncio.create_task(until_closed(reader))
        for byte in b"GET / HTTP/1.1\r\nhost: " + b"x" * 1000:
            if closed.done():
                break
            with contextlib.suppress(ConnectionError):
                writer.write(bytes([byte]))
                await writer.drain()
            await asyncio.wait({closed}, timeout=0.02)
        assert (await closed).startswith(b"HTTP/1.1 408")


async def test_empty_lines_after_an_answer_do_not_keep_a_connection(
    running: tuple[App, int, list[int]],
) -> None:
    _, port, _ = running
    async with connected(port) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n0")
        writer.write(b"\r\n")
        assert await until_closed(reader) == b""


async def test_a_body_that_does_not_come_in_time_is_408_and_the_app_is_told(
    running: tuple[App, int, list[int]],
) -> None:
    app, port, refused_statuses = running
    async with connected(port) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc")
        answer = await until_closed(reader)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"application/problem+json" in answer
    assert (app.disconnects, refused_statuses) == (1, [408])
    assert await works(port)


@pytest.mark.parametrize("split", [True, False], ids=["bit by bit", "at once"])
async def test_a_head_that_is_too_large_is_431(running: tuple[App, int, list[int]], split: bool) -> None:
    app, port, refused_statuses = running
    async with connected(port) as (reader, writer):
        head = b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 5000 + b"\r\n\r\n"
        for start in range(0, len(head), 500 if split else len(head)):
            writer.write(head[start : start + (500 if split else len(head))])
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        assert (await until_closed(reader)).startswith(b"HTTP/1.1 431")
    assert (app.requests, refused_statuses) == (0, [431])


async def test_more_connections_than_allowed_are_503_and_the_others_go_on(
    running: tuple[App, int, list[int]],
) -> None:
    _, port, refused_statuses = running
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            reader, writer = await stack.enter_async_context(connected(port))
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n0")
        late_reader, _ = await stack.enter_async_context(connected(port))
        answer = await until_closed(late_reader)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1\r\n" in answer
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n0")
    assert refused_statuses == [503]


async def test_garbage_behind_a_request_does_not_take_its_answer(running: tuple[App, int, list[int]]) -> None:
    app, port, _ = running
    app.gate.clear()
    async with connected(port) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nab")
        await writer.drain()
        writer.write(b"\x00garbage\r\n\r\n")
        await writer.drain()
        asyncio.get_running_loop().call_later(0.2, app.gate.set)
        answer = await until_closed(reader)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 400" not in answer


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    "length", [b"content-length: 3\r\n\r\nabc", b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]
)
async def test_a_wish_to_upgrade_is_ignored_and_costs_no_body(
    running: tuple[App, int, list[int]], size: int, length: bytes
) -> None:
    _, port, _ = running
    upgrade_headers = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAM\r\n"
    plain_request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nab"
    async with connected(port) as (reader, writer):
        sent_bytes = b"POST / HTTP/1.1\r\nhost: x\r\n" + upgrade_headers + length + plain_request
        for start in range(0, len(sent_bytes), size):
            writer.write(sent_bytes[start : start + size])
            await writer.drain()
        for number in (b"3", b"2"):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert await reader.read(1) == number


async def test_a_tunnel_is_refused(running: tuple[App, int, list[int]]) -> None:
    _, port, refused_statuses = running
    async with connected(port) as (reader, writer):
        writer.write(b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await until_closed(reader)).startswith(b"HTTP/1.1 400")
    assert refused_statuses == [400]


async def test_a_client_that_does_not_read_its_answer_is_cut_off(running: tuple[App, int, list[int]]) -> None:
    app, port, _ = running
    app.answer = b"x" * 50_000_000
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await writer.drain()
    async with asyncio.timeout(10):
        while not await is_reset(writer):
            await asyncio.sleep(0.05)
    writer.close()
    app.answer = b""
    assert await works(port)


async def is_reset(writer: asyncio.StreamWriter) -> bool:
    """The server has reset the connection."""
    try:
        writer.write(b"\r\n")
        await writer.drain()
    except ConnectionError:
        return True
    return writer.transport.is_closing()


async def test_an_idle_connection_between_requests_is_kept(running: tuple[App, int, list[int]]) -> None:
    _, port, refused_statuses = running
    async with connected(port) as (reader, writer):
        for _ in range(2):
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nab")
            assert (await reader.readuntil(b"\r\n\r\n2")).startswith(b"HTTP/1.1 200")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 1.0)
    assert refused_statuses == []


async def test_a_connection_that_was_answered_before_its_body_came_does_not_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        limits.LimitedConnection,
        "timeout_keep_alive",
        property(lambda _: 0.3, lambda *_: None),
        raising=False,
    )

    async def refuse(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    sock = server.listen("127.0.0.1", 0)
    async with (
        server.serve(refuse, sock, drain_s=2, limits=LIMITS),
        connected(sock.getsockname()[1]) as (reader, writer),
    ):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401")
        writer.write(b"ab")
        assert await until_closed(reader) == b""


async def test_a_body_is_not_taken_for_the_head_behind_it(running: tuple[App, int, list[int]]) -> None:
    _, port, refused_statuses = running
    async with connected(port) as (reader, writer):
        body = b"x" * (LIMITS.head_bytes + 1)
        writer.write(
            b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%bGET / HTTP/1.1\r\n"
            % (len(body), body)
        )
        assert (await reader.readuntil(b"\r\n\r\n%d" % len(body))).startswith(b"HTTP/1.1 200")
        writer.write(b"host: x\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n0")).startswith(b"HTTP/1.1 200")
    assert refused_statuses == []


async def test_leaving_finishes_running_requests() -> None:
    app = App()
    app.gate.clear()
    sock = server.listen("127.0.0.1", 0)
    reader = None
    async with server.serve(app, sock, drain_s=5):
        reader, writer = await asyncio.open_connection("127.0.0.1", sock.getsockname()[1])
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nab")
        await writer.drain()
        async with asyncio.timeout(5):
            while not app.requests:
                await asyncio.sleep(0.01)
        asyncio.get_running_loop().call_later(0.3, app.gate.set)
    answer = await until_closed(reader)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer
    writer.close()
