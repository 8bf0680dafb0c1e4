"""Shared by the tests of collect: a stream, a source topic, and services as processes that can be killed."""

import asyncio
import contextlib
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.support.observe_principal import create_principals
from tests.support.stream_process import create_stream, free_port, read_all, readyz, start_service

from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish, read_registry
from hifi.pipe.revision import deletion_record, pipe_record
from hifi.pipe.rollout import change_pause
from hifi.record.fields import fields as header_fields

SOURCE_PARTITIONS = 3


@dataclass
class CollectedStream:
    """A created stream with one pipe, whose source is a topic of its own."""

    kafka: str
    log: Path
    topics: Topics
    source: str
    producer: AIOKafkaProducer
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def pipe(self, **source: Any) -> Pipe:
        declared = {"kind": "kafka", "bootstrap": self.kafka, "topic": self.source, **source}
        destinations = [{"name": "d", "url": "http://127.0.0.1:9/"}]
        return Pipe.model_validate({"pipe": "orders", "source": declared, "destinations": destinations})

    async def publish(self, pipe: Pipe) -> None:
        await publish(self.kafka, self.topics, [pipe_record(pipe)])

    async def delete(self, name: str) -> None:
        await publish(self.kafka, self.topics, [deletion_record(name)])

    async def set_paused(self, *, paused: bool) -> None:
        registry = await read_registry(self.kafka, self.topics)
        await publish(self.kafka, self.topics, change_pause(registry, "orders", paused=paused))

    async def put(self, numbers: range, timestamp_ms: int | None = None, topic: str | None = None) -> None:
        """Write JSON objects to the source, most of them with a key; another time than now, or another topic."""
        for number in numbers:
            key = None if number % 5 == 0 else b"k%d" % (number % 50)
            value = orjson.dumps({"n": number})
            await self.producer.send(topic or self.source, value, key=key, timestamp_ms=timestamp_ms)
        await self.producer.flush()

    async def commit(self, offset: int) -> None:
        """Commit an offset of every partition of the source for collect."""
        group = self.topics.group("collect.orders")
        consumer = AIOKafkaConsumer(bootstrap_servers=self.kafka, group_id=group, enable_auto_commit=False)
        await consumer.start()
        try:
            partitions = [TopicPartition(self.source, number) for number in range(SOURCE_PARTITIONS)]
            consumer.assign(partitions)
            await consumer.commit(dict.fromkeys(partitions, offset))
        finally:
            await consumer.stop()

    async def create_source_again(self) -> None:
        """Delete the source topic and create it anew."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.kafka)
        await admin.start()
        try:
            await admin.delete_topics([self.source])
            async with asyncio.timeout(60):
                while not await _created(admin, self.source):
                    await asyncio.sleep(0.2)
        finally:
            await admin.close()

    async def start(self, service: str, **settings: object) -> tuple[subprocess.Popen[bytes], int]:
        """Start a service and wait until it is ready; its process, and the port of its health pages."""
        admin_port = free_port()
        if service == "observe":
            await create_principals(self.kafka, self.topics.stream)
        process = start_service(
            f"hifi-{service}", self.kafka, self.topics.stream, admin_port, self.log, **settings
        )
        self.processes.append(process)
        await until(lambda: readyz(admin_port)[0] == 200 or process.poll() is not None)
        assert process.poll() is None, self.log.read_text()[-3000:]
        return process, admin_port

    async def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        await asyncio.to_thread(process.wait)

    async def all(self, topic: str) -> list[ConsumerRecord]:
        return await read_all(self.kafka, topic)

    async def read(
        self, topic: str, is_complete: Callable[[list[ConsumerRecord]], bool]
    ) -> list[ConsumerRecord]:
        """All records of a topic as soon as they are enough."""
        async with asyncio.timeout(90):
            while not is_complete(records := await self.all(topic)):
                await asyncio.sleep(0.2)
        return records


@contextlib.asynccontextmanager
async def collected_stream(kafka: str, log: Path) -> AsyncIterator[CollectedStream]:
    """A new stream and source topic; what still runs at the end is killed."""
    source = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    assert await _created(admin, source)
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=kafka, acks="all")
    await producer.start()
    stream = CollectedStream(kafka, log, Topics(await create_stream(kafka)), source, producer)
    try:
        yield stream
    finally:
        for process in stream.processes:
            if process.poll() is None:
                await stream.kill(process)
        await producer.stop()


async def until(condition: Callable[[], bool], bound_s: float = 90) -> None:
    """Wait for a condition that may block shortly."""
    async with asyncio.timeout(bound_s):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.1)


def fields(record: ConsumerRecord) -> dict[str, bytes]:
    """Headers and fields of packed headers by name."""
    return header_fields(record.headers)


def ids_of(records: list[Any]) -> set[bytes]:
    return {fields(record)["ce_id"] for record in records}


async def _created(admin: AIOKafkaAdminClient, name: str) -> bool:
    """Create a source topic; False: Kafka still has the one before."""
    topic = NewTopic(name, SOURCE_PARTITIONS, 1, topic_configs={"message.timestamp.type": "CreateTime"})
    answer = await admin.create_topics([topic])
    return all(error[1] == 0 for error in answer.topic_errors)
