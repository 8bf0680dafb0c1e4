"""A gate answers requests before the application, in their order, and the connection stays usable."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hifi.runtime.http import server
from hifi.runtime.http.limits import ConnectionLimits

LIMITS = ConnectionLimits(head_s=5, request_s=0.5)


class Refusing:
    """Refuses requests whose path starts with /no, and tells the app what it has let in."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def __call__(self, scope: Any, method: bytes, target: bytes) -> Any:
        self.asked.append(target)
        if target.startswith(b"/no"):
            return 429, b"refused", [(b"retry-after", b"1")]
        scope["state"]["seen"] = method
        return None


async def app(scope: Any, receive: Any, send: Any) -> None:
    size, has_more = 0, True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message.get("body", b""))
        has_more = message.get("more_body", False)
    body = b"%s got %d from %s" % (scope["path"].encode(), size, scope["state"].get("seen", b"nobody"))
    start = {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-length", b"%d" % len(body))],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def running() -> AsyncIterator[tuple[int, Refusing]]:
    gate = Refusing()
    sock = server.listen("127.0.0.1", 0)
    async with server.serve(app, sock, drain_s=2, limits=LIMITS, gate=gate):
        yield sock.getsockname()[1], gate


async def answers(port: int, *chunks: bytes, responses_per_part: int = 1) -> list[tuple[int, bytes]]:
    """Send the parts on one connection and read that many responses after each; status 0: it was closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    responses = []
    try:
        async with asyncio.timeout(10):
            for chunk in chunks:
                writer.write(chunk)
                for _ in range(responses_per_part):
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
                    responses.append((int(head.split()[1]), await reader.readexactly(length)))
    except asyncio.IncompleteReadError:
        responses.append((0, b""))
    finally:
        writer.close()
    return responses


def post(path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


async def test_a_refused_request_gets_the_answer_of_the_gate_and_the_next_one_that_of_the_app(
    running: tuple[int, Refusing],
) -> None:
    port, gate = running
    responses = await answers(
        port, post("/no", b"a" * 300_000), post("/yes", b"abc"), post("/no"), post("/yes")
    )
    assert responses == [
        (429, b"refused"),
        (200, b"/yes got 3 from POST"),
        (429, b"refused"),
        (200, b"/yes got 0 from POST"),
    ]
    assert gate.asked == [b"/no", b"/yes", b"/no", b"/yes"]


async def test_requests_sent_at_once_are_answered_in_their_order(running: tuple[int, Refusing]) -> None:
    port, _ = running
    responses = await answers(
        port, post("/no") + post("/yes", b"x") + post("/no") + post("/no"), responses_per_part=4
    )
    # What follows a request that is still being answered goes to the app, which refuses by itself.
    assert [status for status, _ in responses] == [429, 200, 200, 200]
    assert [body.split()[0] for _, body in responses] == [b"refused", b"/yes", b"/no", b"/no"]


@pytest.mark.slow
@pytest.mark.parametrize("header", ["expect: 100-continue", "connection: close"])
async def test_what_changes_the_connection_goes_to_the_app(
    running: tuple[int, Refusing], header: str
) -> None:
    port, gate = running
    request = post("/no", b"abc", header)
    [(status, _)] = await answers(port, request)
    assert status in (100, 200) if "expect" in header else status == 200
    assert gate.asked == []


@pytest.mark.slow
async def test_a_refused_request_whose_body_never_comes_is_closed(running: tuple[int, Refusing]) -> None:
    port, _ = running
    responses = await answers(port, post("/no", b"abc")[:-1], responses_per_part=2)
    assert responses == [(429, b"refused"), (0, b"")]
