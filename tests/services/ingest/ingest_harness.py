"""Shared by the tests of ingest: a fake producer, streams, and ingest as a process."""

import asyncio
import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from hifi.errors import Overloaded
from hifi.event import Record
from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer, Sending
from hifi.pipe.model import Pipe
from hifi.pipe.registry import deletion_record, pipe_record, publish, stream_record
from hifi.topics import Topics

T = TypeVar("T")
KEY = "a-write-key"
PARTITIONS = 4
PROGRAM = Path(sys.executable).with_name("hifi-ingest")


class FakeProducer(Producer):
    """Per partition, as `plan` says: ack, lose (sent, never acknowledged), hold (never sent) or full (refused)."""

    def __init__(self, plan: dict[int, str]) -> None:
        self.plan = plan
        self.sent: dict[int, list[Record]] = {}
        self.sendings: list[Sending] = []
        self.stalled = 0.0

    def send(self, topic: str, partition: int, records: Sequence[Record]) -> Sending:
        del topic
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


async def read_all(kafka: str, topic: str) -> list[ConsumerRecord]:
    """All records of a topic, by partition and offset."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, each) for each in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        found: list[ConsumerRecord] = []
        for tp in partitions:
            while await consumer.position(tp) < ends[tp]:
                for records in (await consumer.getmany(tp, timeout_ms=500)).values():
                    found += records
        return found
    finally:
        await consumer.stop()


@dataclass
class Stream:
    """A created stream."""

    kafka: str
    name: str

    @property
    def topics(self) -> Topics:
        return Topics(self.name)

    async def publish(self, *pipes: Pipe) -> None:
        await publish(self.kafka, self.topics, [pipe_record(each) for each in pipes])

    async def delete(self, name: str) -> None:
        await publish(self.kafka, self.topics, [deletion_record(name)])

    async def raw(self) -> list[ConsumerRecord]:
        return await read_all(self.kafka, self.topics.raw)

    async def accepted(self) -> list[ConsumerRecord]:
        return await read_all(self.kafka, self.topics.accepted)


async def new_stream(kafka: str, *pipes: Pipe) -> Stream:
    """Create a stream with these pipes."""
    stream = Stream(kafka, f"t{uuid.uuid4().hex[:10]}")
    await create_topics(kafka, stream.topics, partitions=PARTITIONS, replication=1)
    await publish(kafka, stream.topics, [stream_record(PARTITIONS), *map(pipe_record, pipes)])
    return stream


def make_stream(kafka: str, *pipes: Pipe) -> Stream:
    """`new_stream` outside of an event loop."""
    with asyncio.Runner() as runner:
        return runner.run(new_stream(kafka, *pipes))


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


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
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/readyz", timeout=2) as answer:
                return answer.status, orjson.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, orjson.loads(error.read())
        except OSError:
            return 0, {}

    def stop(self, bound_s: float = 20) -> int:
        """Stop with SIGTERM and return the exit status."""
        self.process.terminate()
        return self.process.wait(bound_s)


def wait_until(look: Callable[[], T], bound_s: float = 20) -> T:
    """Wait until `look` returns a true value, and return it."""
    end = time.monotonic() + bound_s
    while not (found := look()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def ingest(kafka: str, stream: str, log: Path, *, ready: bool = True, **settings: object) -> Iterator[Ingest]:
    """A running ingest process; killed at the end if it still runs."""
    port, admin = int(str(settings.pop("ingest_port", 0))) or free_port(), free_port()
    names = {
        "kafka": kafka,
        "stream": stream,
        "port": admin,
        "ingest_port": port,
        "log_format": "json",
        **settings,
    }
    env = os.environ | {f"HIFI_{name.upper()}": str(value) for name, value in names.items()}
    with log.open("ab") as output:
        process = subprocess.Popen([PROGRAM], env=env, stdout=output, stderr=output)
    one = Ingest(process, port, admin, log)
    try:
        wait_until(lambda: process.poll() is not None or one.readyz()[0] in ((200,) if ready else (200, 503)))
        assert process.poll() is None, log.read_text()
        yield one
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
