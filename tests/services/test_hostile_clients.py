"""Clients that hold connections, or send heads and bodies slowly or without end, do not slow other senders.

Real programs and Kafka: ingest, observe and manage with and without TLS, and the front of two colours. The 95th
percentile of a sender's answers is compared with that of the same sender before and after.
"""

import asyncio
import contextlib
import resource
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.ingest.ingest_harness import KEY, ingest, make_stream, pipe
from tests.support.stream_process import free_port, start_service

from hifi.delivery.colours import NAMES
from hifi.runtime.health import Health
from hifi.runtime.http.tls import ServerCertificate
from hifi_infra.colours.haproxy import HAProxy
from hifi_infra.colours.haproxy_program import find_haproxy
from hifi_infra.kafka.certificates import make_authority, make_certificate

REQUESTS = 100
IDLE = 10_000
IDLE_OF_CONSOLES = 4_000
"""Below the 4,096 connections of observe and manage."""
ATTACKERS = 50
LIMIT = 2.0
"""Times the p95 without attackers."""
PAUSE_S = 0.2
WITHIN_S = 600
TLS = {"tls": True, "plain": False}
EVENT = b'{"n": 1}'
POST = b"POST /v1/pipes/flights/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" % KEY.encode()
SENT = POST + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(EVENT), EVENT)
PAGE = b"GET /sign-in HTTP/1.1\r\nHost: x\r\n\r\n"


@dataclass(frozen=True)
class Target:
    """A server, and the request of good clients."""

    port: int
    good_request: bytes
    status: bytes
    idle: int
    trusted: ssl.SSLContext | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = "localhost" if self.trusted else None
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trusted, server_hostname=name)


Attack = Callable[[Target, asyncio.Event], Awaitable[None]]


async def answer(reader: asyncio.StreamReader) -> bytes:
    """Read an answer; returns its head."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = (line.partition(b":") for line in head.lower().split(b"\r\n"))
    await reader.readexactly(next(int(value) for name, _, value in lines if name == b"content-length"))
    return head


async def p95_ms(target: Target) -> float:
    """The 95th percentile of single requests, one after the other, over one connection; each must be answered."""
    reader, writer = await target.connect()
    took_ms = []
    for _ in range(REQUESTS):
        start_s = time.perf_counter()
        writer.write(target.good_request)
        head = await answer(reader)
        assert head.split(b" ")[1] == target.status, head
        took_ms.append((time.perf_counter() - start_s) * 1000)
    writer.close()
    return sorted(took_ms)[int(len(took_ms) * 0.95)]


async def idle(target: Target, attack_started: asyncio.Event) -> None:
    """Keep many connections open that have had an answer and send nothing more."""
    writers = []

    async def connect() -> None:
        reader, writer = await target.connect()
        writers.append(writer)
        writer.write(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await answer(reader)).split(b" ")[1] == b"404"

    try:
        for _ in range(target.idle // ATTACKERS):
            await asyncio.gather(*(connect() for _ in range(ATTACKERS)))
        attack_started.set()
        await asyncio.Event().wait()
    finally:
        for writer in writers:
            writer.transport.abort()


async def dribble(target: Target, attack_started: asyncio.Event, head: bytes, repeated_bytes: bytes) -> None:
    """Send the head, then `repeated_bytes` every 200 ms, until the server closes; then again."""
    while True:
        with contextlib.suppress(OSError):
            _, writer = await target.connect()
            writer.write(head)
            while not writer.is_closing():
                writer.write(repeated_bytes)
                await writer.drain()
                attack_started.set()
                await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(PAUSE_S)


async def slow_heads(target: Target, attack_started: asyncio.Event) -> None:
    await dribble(target, attack_started, b"POST /v1/pipes/flights/events HTTP/1.1\r\nHost: x\r\n", b"X")


async def slow_bodies(target: Target, attack_started: asyncio.Event) -> None:
    await dribble(
        target,
        attack_started,
        POST + b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n[",
        b" ",
    )


async def header_floods(target: Target, attack_started: asyncio.Event) -> None:
    await dribble(
        target, attack_started, b"GET / HTTP/1.1\r\nHost: x\r\n", b"X-Flood: %s\r\n" % (b"x" * 8000)
    )


@contextlib.asynccontextmanager
async def attacked(target: Target, attack: Attack, count: int) -> AsyncIterator[None]:
    """Run attackers while the block runs, which begins when all are under way; one that ends is a failure."""
    start_events = [asyncio.Event() for _ in range(count)]
    attackers = [asyncio.ensure_future(attack(target, attack_started)) for attack_started in start_events]
    try:
        async with asyncio.timeout(WITHIN_S):
            await asyncio.gather(*(attack_started.wait() for attack_started in start_events))
        yield
        assert not any(attacker.done() for attacker in attackers)
    finally:
        for attacker in attackers:
            attacker.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)


def most_connections() -> int:
    """Connections that HAProxy takes, of which each may need two files, with some left for others."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 2 - 500


class Servers:
    """Starts the servers.

    Args:
        kafka: bootstrap servers.
        folder: the folder of their files.
        tls: whether they take TLS only.
    """

    def __init__(self, kafka: str, folder: Path, *, tls: bool) -> None:
        self._kafka = kafka
        self._folder = folder
        self._chain, self._key = folder / "chain.pem", folder / "key.pem"
        self._trusted: ssl.SSLContext | None = None
        if tls:
            authority = make_authority()
            key, certificate = make_certificate(*authority, "localhost")
            self._chain.write_text(certificate)
            self._key.write_text(key)
            self._trusted = ssl.create_default_context(cadata=authority[1])

    def _files(self, service: str) -> dict[str, object]:
        files = {"certificate_file": self._chain, "key_file": self._key}
        return {f"{service}_tls_{name}": file for name, file in files.items()} if self._trusted else {}

    @contextlib.asynccontextmanager
    async def ingest(self, *, behind_a_front: bool = False) -> AsyncIterator[Target]:
        stream = await asyncio.to_thread(make_stream, self._kafka, pipe())
        settings: dict[str, Any] = {} if behind_a_front else self._files("ingest")
        with ingest(
            self._kafka,
            stream.name,
            self._folder / "ingest.log",
            ingest_max_connections=IDLE + 1000,
            ingest_head_timeout_s=3,
            **settings,
        ) as instance:
            yield Target(instance.port, SENT, b"202", IDLE, None if behind_a_front else self._trusted)

    @contextlib.asynccontextmanager
    async def front(self) -> AsyncIterator[Target]:
        """All requests go to one ingest."""
        find_haproxy()
        async with self.ingest(behind_a_front=True) as target:
            certificate = None
            if self._trusted:
                certificate = ServerCertificate(self._chain, self._key, Health("front", "here"))
            addresses = {NAMES[0]: [f"127.0.0.1:{target.port}"], NAMES[1]: [f"127.0.0.1:{free_port()}"]}
            front = HAProxy(self._folder / "front", free_port(), addresses, certificate)
            await front.start({NAMES[0]: 10_000, NAMES[1]: 0})
            try:
                port = int(front.url.rpartition(":")[2])
                yield replace(target, port=port, trusted=self._trusted, idle=min(IDLE, most_connections()))
            finally:
                await front.kill()

    @contextlib.asynccontextmanager
    async def console(self, service: str) -> AsyncIterator[Target]:
        stream = await asyncio.to_thread(make_stream, self._kafka, pipe())
        port, log = free_port(), self._folder / "log"
        settings: dict[str, object] = {f"{service}_port": port, **self._files(service)}
        if service == "manage":
            settings["control"] = f"{stream.name}-control"
        process = start_service(f"hifi-{service}", self._kafka, stream.name, free_port(), log, **settings)
        target = Target(port, PAGE, b"200", IDLE_OF_CONSOLES, self._trusted)
        try:
            async with asyncio.timeout(WITHIN_S):
                while True:
                    assert process.poll() is None, log.read_text()[-3000:]
                    with contextlib.suppress(OSError):
                        _, writer = await target.connect()
                        writer.close()
                        break
                    await asyncio.sleep(0.1)
            yield target
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raise the limit of open files of this process and of those that it starts."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard_limit, 2 * IDLE), hard_limit))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit, hard_limit))


@pytest.mark.more  # a comparison of times; the limits themselves: tests/libs/runtime/http/test_limits.py
@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize(
    ("attack", "count"),
    [(idle, 1), (slow_heads, ATTACKERS), (slow_bodies, ATTACKERS), (header_floods, ATTACKERS)],
    ids=["idle", "slow-heads", "slow-bodies", "header-floods"],
)
@pytest.mark.parametrize("tls", TLS.values(), ids=TLS)
@pytest.mark.parametrize("server", ["ingest", "front", "observe", "manage"])
async def test_a_good_sender_is_answered_as_fast_as_before(
    kafka: str, tmp_path: Path, server: str, tls: bool, attack: Attack, count: int
) -> None:
    servers = Servers(kafka, tmp_path, tls=tls)
    start_server = {"ingest": servers.ingest, "front": servers.front}.get(server)
    async with start_server() if start_server else servers.console(server) as target:
        await p95_ms(target)  # warm
        before_ms = await p95_ms(target)
        async with attacked(target, attack, count):
            during_ms = sorted([await p95_ms(target) for _ in range(3)])[1]
        after_ms = await p95_ms(target)
    assert during_ms <= LIMIT * max(before_ms, after_ms), (
        f"p95 {before_ms:.1f} ms before, {during_ms:.1f} ms during"
    )
