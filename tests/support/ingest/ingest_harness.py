"""Shared by the tests of ingest: a fake producer, streams, and ingest as a process."""

import asyncio
import contextlib
import hashlib
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aiokafka import ConsumerRecord
from tests.support.stream_process import create_stream, free_port, read_all, readyz, start_service

from hifi.kafka.producer import Producer, Sending
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish
from hifi.pipe.revision import deletion_record, pipe_record
from hifi.record.record import Record
from hifi.runtime.errors import Overloaded

T = TypeVar("T")
KEY = "a-write-key"


class FakeProducer(Producer):
    """Per partition, as `plan` says: ack, lose (sent, never acknowledged), hold (never sent) or full (refused)."""

    def __init__(self, plan: dict[int, str]) -> None:
        self.plan = plan
        self.sent: dict[int, list[Record]] = {}
        self.sendings: list[Sending] = []
        self.stalled = 0.0

    def send(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        at_once: bool = False,
        repeats: bool = True,
    ) -> Sending:
        del topic, at_once, repeats
        plan = self.plan.get(partition, "ack")
        if plan == "full":
            raise Overloaded("full")
        sending = Sending(records, 0)
        self.sendings.append(sending)
        self.sent.setdefault(partition, []).extend(records)
        sending.handed_over = plan in {"ack", "lose"}
        if plan == "ack":
            asyncio.get_running_loop().call_soon(sending.acknowledged.set_result, None)
        return sending

    def stalled_s(self, now_s: float) -> float:
        del now_s
        return self.stalled


def pipe(name: str = "flights", key: str = KEY, **source: Any) -> Pipe:
    """A pipe with this write key."""
    source.setdefault("keys", [{"sha256": hashlib.sha256(key.encode()).hexdigest()}])
    destination = {"name": "d", "url": "http://127.0.0.1:9/"}
    return Pipe.model_validate({"pipe": name, "source": source, "destinations": [destination]})


@dataclass
class Stream:
    """A created stream."""

    kafka: str
    name: str

    @property
    def topics(self) -> Topics:
        return Topics(self.name)

    async def publish(self, *pipes: Pipe) -> None:
        await publish(self.kafka, self.topics, [pipe_record(declared_pipe) for declared_pipe in pipes])

    async def delete(self, name: str) -> None:
        await publish(self.kafka, self.topics, [deletion_record(name)])

    async def raw(self) -> list[ConsumerRecord]:
        return await read_all(self.kafka, self.topics.raw)

    async def accepted(self) -> list[ConsumerRecord]:
        return await read_all(self.kafka, self.topics.accepted)


async def new_stream(kafka: str, *pipes: Pipe) -> Stream:
    """Create a stream with these pipes."""
    stream = Stream(kafka, await create_stream(kafka))
    if pipes:
        await stream.publish(*pipes)
    return stream


def make_stream(kafka: str, *pipes: Pipe) -> Stream:
    """`new_stream` outside of an event loop."""
    with asyncio.Runner() as runner:
        return runner.run(new_stream(kafka, *pipes))


@dataclass
class Ingest:
    """One ingest process."""

    process: subprocess.Popen[bytes]
    port: int
    admin: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def readyz(self) -> tuple[int, dict[str, Any]]:
        return readyz(self.admin)

    def stop(self, bound_s: float = 20) -> int:
        """Stop with SIGTERM and return the exit status."""
        self.process.terminate()
        return self.process.wait(bound_s)


def wait_until(probe: Callable[[], T], bound_s: float = 20) -> T:
    """Wait until `probe` returns a true value, and return it."""
    end_s = time.monotonic() + bound_s
    while not (value := probe()):
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(0.05)
    return value


@contextlib.contextmanager
def ingest(kafka: str, stream: str, log: Path, *, ready: bool = True, **settings: object) -> Iterator[Ingest]:
    """A running ingest process; killed at the end if it still runs."""
    port, admin = int(str(settings.pop("ingest_port", 0))) or free_port(), free_port()
    process = start_service("hifi-ingest", kafka, stream, admin, log, ingest_port=port, **settings)
    instance = Ingest(process, port, admin, log)
    try:
        wait_until(
            lambda: process.poll() is not None or instance.readyz()[0] in ((200,) if ready else (200, 503))
        )
        assert process.poll() is None, log.read_text()
        yield instance
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
