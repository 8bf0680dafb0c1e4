"""Clients that hold connections, or send heads and bodies slowly or without end, do not slow other senders.

Real HTTP and Kafka. The 95th percentile of a sender's answers is compared with that of the same sender before.
"""

import asyncio
import contextlib
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.ingest.ingest_harness import KEY, Ingest, ingest, make_stream, pipe

REQUESTS = 300
IDLE = 10_000
ATTACKERS = 50
LIMIT = 2.0
"""Times the p95 without attackers."""
PAUSE_S = 0.2

Attack = Callable[[Ingest, asyncio.Event], Awaitable[None]]


async def p95_ms(instance: Ingest) -> float:
    """That of single events, one after the other, over one connection; each must be accepted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", instance.port)
    body = b'{"n": 1}'
    request = (
        b"POST /v1/pipes/flights/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (KEY.encode(), len(body), body)
    )
    took_ms = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 202"), head
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        await reader.readexactly(length)
        took_ms.append((time.perf_counter() - began) * 1000)
    writer.close()
    return sorted(took_ms)[int(len(took_ms) * 0.95)]


async def idle(instance: Ingest, under_way: asyncio.Event) -> None:
    """Keep many connections open that have had an answer and send nothing more."""
    writers = []
    try:
        for _ in range(IDLE):
            reader, writer = await asyncio.open_connection("127.0.0.1", instance.port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writers.append(writer)
        under_way.set()
        await asyncio.Event().wait()
    finally:
        for writer in writers:
            writer.close()


async def dribble(instance: Ingest, under_way: asyncio.Event, head: bytes, part: bytes) -> None:
    """Send the head, then a part every 200 ms, until the server closes; then again."""
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", instance.port)
            writer.write(head)
            while not writer.is_closing():
                writer.write(part)
                await writer.drain()
                under_way.set()
                await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(PAUSE_S)


async def slow_heads(instance: Ingest, under_way: asyncio.Event) -> None:
    await dribble(instance, under_way, b"POST /v1/pipes/flights/events HTTP/1.1\r\nHost: x\r\n", b"X")


async def slow_bodies(instance: Ingest, under_way: asyncio.Event) -> None:
    head = b"POST /v1/pipes/flights/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" % KEY.encode()
    await dribble(
        instance, under_way, head + b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n[", b" "
    )


async def header_floods(instance: Ingest, under_way: asyncio.Event) -> None:
    await dribble(instance, under_way, b"GET / HTTP/1.1\r\nHost: x\r\n", b"X-Flood: %s\r\n" % (b"x" * 8000))


@contextlib.asynccontextmanager
async def attacked(instance: Ingest, attack: Attack, count: int) -> AsyncIterator[None]:
    """Run attackers while the block runs, which begins when all are under way; one that ends is a failure."""
    started = [asyncio.Event() for _ in range(count)]
    attackers = [asyncio.ensure_future(attack(instance, under_way)) for under_way in started]
    try:
        async with asyncio.timeout(60):
            await asyncio.gather(*(under_way.wait() for under_way in started))
        yield
        assert not any(attacker.done() for attacker in attackers)
    finally:
        for attacker in attackers:
            attacker.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)


@pytest.mark.more  # a comparison of times; the limits themselves: tests/libs/runtime/http/test_limits.py
@pytest.mark.parametrize(
    ("attack", "count"),
    [(idle, 1), (slow_heads, ATTACKERS), (slow_bodies, ATTACKERS), (header_floods, ATTACKERS)],
    ids=["idle", "slow-heads", "slow-bodies", "header-floods"],
)
async def test_a_good_sender_is_answered_as_fast_as_before(
    kafka: str, tmp_path: Path, attack: Attack, count: int
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * IDLE), hard))
    stream = await asyncio.to_thread(make_stream, kafka, pipe())
    try:
        with ingest(
            kafka,
            stream.name,
            tmp_path / "ingest.log",
            ingest_max_connections=IDLE + 1000,
            ingest_head_timeout_s=3,
        ) as instance:
            await p95_ms(instance)  # warm
            before = await p95_ms(instance)
            async with attacked(instance, attack, count):
                during = await p95_ms(instance)
            after = await p95_ms(instance)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert during <= LIMIT * max(before, after), f"p95 {before:.1f} ms before, {during:.1f} ms during"
