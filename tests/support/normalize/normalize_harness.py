"""Shared by the tests of normalize: a stream, events on its topic `raw`, and normalize as a process."""

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from tests.support.stream_process import PARTITIONS, create_stream, free_port, read_all, readyz, start_service

from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish
from hifi.pipe.revision import deletion_record, pipe_record
from hifi.record.fields import fields, packed
from hifi.record.headers import ACCEPTED, CONTENT_TYPE, IN, MINUTE, PIPE, REVISION, REVISION_OFFSET, SEQ
from hifi.record.identity import seq_text
from hifi.record.record import Record


def pipe(name: str, **normalize: Any) -> Pipe:
    """A pipe with this `normalize` section."""
    return Pipe.model_validate(
        {
            "pipe": name,
            "source": {"keys": [{"sha256": "0" * 64}]},
            "normalize": normalize,
            "destinations": [{"name": "d", "url": "http://127.0.0.1:9/"}],
        }
    )


@dataclass
class Stream:
    """A created stream, with a producer for its topic `raw`."""

    kafka: str
    name: str
    version: int = 0
    """Highest published version of a pipe."""
    sequence: int = 0
    producer: Producer = field(init=False)

    @property
    def topics(self) -> Topics:
        return Topics(self.name)

    def event(self, name: str, data: object, *, version: int | None = None) -> Record:
        """An event as ingest would write it."""
        self.sequence += 1
        revision = b"%d" % (self.version if version is None else version)
        headers = packed(
            {
                PIPE: name.encode(),
                REVISION: revision,
                REVISION_OFFSET: revision,
                ACCEPTED: b"1800000000000000",
                MINUTE: b"30000000",
                SEQ: seq_text(0xABC, self.sequence),
                IN: b"1800000000000001",
                "ce_id": b"%d" % self.sequence,
                "ce_specversion": b"1.0",
                CONTENT_TYPE: b"application/json",
            }
        )
        return Record(b"key", data if isinstance(data, bytes) else orjson.dumps(data), headers)

    async def put(self, partition: int, *records: Record) -> None:
        await self.producer.send_and_wait(self.topics.raw, partition, records)

    async def publish(self, *pipes: Pipe) -> None:
        await publish(self.kafka, self.topics, [pipe_record(declared_pipe) for declared_pipe in pipes])
        self.version += len(pipes)

    async def delete(self, name: str) -> None:
        await publish(self.kafka, self.topics, [deletion_record(name)])
        self.version += 1

    async def read(self, topic: str, count: int, bound_s: float = 30) -> list[ConsumerRecord]:
        """Wait until a topic has `count` records, and return all of them by partition and offset."""
        end_s = time.monotonic() + bound_s
        while len(records := await self.all(topic)) < count:
            assert time.monotonic() < end_s, f"{len(records)} of {count} records on {topic}"
            await asyncio.sleep(0.1)
        return records

    async def until(self, topic: str, count: int) -> None:
        """Wait until a topic has `count` records."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self.kafka)
        await consumer.start()
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        try:
            async with asyncio.timeout(40):
                while sum((await consumer.end_offsets(partitions)).values()) < count:
                    await asyncio.sleep(0.005)
        finally:
            await consumer.stop()

    async def all(self, topic: str) -> list[ConsumerRecord]:
        """All records of a topic."""
        return await read_all(self.kafka, topic)


@contextlib.asynccontextmanager
async def new_stream(kafka: str, *pipes: Pipe) -> AsyncIterator[Stream]:
    """A new stream with these pipes, and a producer for its topic `raw`."""
    stream = Stream(kafka, await create_stream(kafka))
    await stream.publish(*pipes)
    stream.producer = Producer(kafka, "test")
    await stream.producer.start()
    try:
        yield stream
    finally:
        await stream.producer.stop()


@dataclass
class Normalize:
    """One normalize process."""

    process: subprocess.Popen[bytes]
    admin: int

    def readyz(self) -> tuple[int, dict[str, Any]]:
        return readyz(self.admin)

    async def stop(self) -> int:
        """Stop with SIGTERM and return the exit status."""
        self.process.terminate()
        return await asyncio.to_thread(self.process.wait, 30)

    async def until(self, status: int, warned: Iterable[str] = ()) -> dict[str, Any]:
        """Wait until /readyz has this status and these warnings, and return its body."""
        async with asyncio.timeout(40):
            while True:
                answer_status, body = await asyncio.to_thread(self.readyz)
                assert self.process.poll() is None, "it ended"
                if answer_status == status and set(warned) <= set(body["warnings"]):
                    return body
                await asyncio.sleep(0.05)

    async def until_no_warnings(self) -> None:
        """Wait until /readyz has no warnings."""
        async with asyncio.timeout(40):
            while (await asyncio.to_thread(self.readyz))[1]["warnings"]:
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def normalize(stream: Stream, log: Path, **settings: object) -> AsyncIterator[Normalize]:
    """A running, ready normalize process; killed at the end if it still runs."""
    admin_port = free_port()
    process = start_service("hifi-normalize", stream.kafka, stream.name, admin_port, log, **settings)
    instance = Normalize(process, admin_port)
    try:
        await instance.until(200)
        yield instance
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def headers(record: ConsumerRecord) -> dict[str, bytes]:
    """Headers and fields of packed headers by name."""
    return fields(record.headers)


def ids(records: Sequence[ConsumerRecord]) -> list[int]:
    """The ids of events."""
    return [int(headers(record)["ce_id"]) for record in records]
