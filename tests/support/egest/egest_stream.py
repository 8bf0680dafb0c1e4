"""Test streams, events as enrich writes them, and egest running in this process or in its own."""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics, parse_tiers
from hifi.pipe.model import ConnectorDestination, Pipe
from hifi.pipe.registry import publish, stream_record
from hifi.pipe.revision import deletion_record, pipe_record
from hifi.record.fields import fields, packed
from hifi.record.headers import (
    ACCEPTED,
    CONTENT_TYPE,
    IN,
    MINUTE,
    OUTCOME,
    PIPE,
    RAW,
    REVISION,
    REVISION_OFFSET,
    SEQ,
    TO,
    Headers,
)
from hifi.record.headers import TIME as TIME_HEADER
from hifi.record.identity import seq_text
from hifi.record.record import Record
from hifi.runtime.service import Service
from hifi_egest.__main__ import egest
from hifi_egest.settings import EgestSettings

TIME = b"2026-11-21T12:00:00Z"

TIERS = "200ms,1s,5s"
EPOCH = 0xABCDEF
PROGRAMS = Path(sys.executable).parent


async def until(condition: Callable[[], Any], within_s: float = 60) -> None:
    """Poll a condition for a limited time."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)


def pipe(url: str, name: str = "flights", **destination: Any) -> Pipe:
    """A pipe with one destination, `d`."""
    destination.setdefault("name", "d")
    return pipe_to(name, {"url": url, **destination})


def pipe_to(name: str, *destinations: dict[str, Any]) -> Pipe:
    source = {"keys": [{"sha256": "0" * 64}]}
    return Pipe.model_validate({"pipe": name, "source": source, "destinations": list(destinations)})


def connector_destination(declared: Pipe) -> ConnectorDestination:
    """The only destination of a pipe, one of a connector."""
    (destination,) = declared.destinations
    assert isinstance(destination, ConnectorDestination)
    return destination


def attributes(number: int) -> Headers:
    """CloudEvents attributes of an event; its id is its number."""
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"%d" % number),
        ("ce_source", b"/test"),
        ("ce_type", b"made"),
        (TIME_HEADER, TIME),
        (CONTENT_TYPE, b"application/json"),
    ]


class EgestStream:
    """A created stream: writes its input, and reads its output."""

    def __init__(self, kafka: str, partitions: int) -> None:
        self.kafka = kafka
        self.partitions = partitions
        self.topics = Topics("t" + uuid.uuid4().hex[:10], parse_tiers(TIERS))
        self.producer = Producer(kafka, "test")
        self.version = 0
        self._numbers = itertools.count()
        self.raw = [itertools.count() for _ in range(partitions)]

    async def create(self) -> None:
        await create_topics(self.kafka, self.topics, partitions=self.partitions, replication=1, timeout_s=60)
        await publish(self.kafka, self.topics, [stream_record(self.partitions)])
        await self.producer.start()

    async def publish(self, *pipes: Pipe) -> None:
        await publish(self.kafka, self.topics, [pipe_record(pipe) for pipe in pipes])
        self.version += len(pipes)

    async def delete(self, name: str) -> None:
        await publish(self.kafka, self.topics, [deletion_record(name)])
        self.version += 1

    def record(
        self,
        to: str = "d",
        *,
        pipe: str = "flights",
        key: str | None = None,
        partition: int = 0,
        **header_fields: Any,
    ) -> Record:
        """An event as enrich writes it; its id is its number."""
        number = next(self._numbers)
        data = header_fields.pop("data", {"number": number})
        version = b"%d" % header_fields.pop("version", self.version)
        headers = packed(
            {
                **dict(attributes(number)),
                PIPE: pipe.encode(),
                REVISION: version,
                REVISION_OFFSET: version,
                SEQ: seq_text(EPOCH, number),
                ACCEPTED: b"%d" % (time.time_ns() // 1000),
                MINUTE: b"%d" % (time.time_ns() // 60_000_000_000),
                IN: b"%d" % (time.time_ns() // 1000),
                RAW: b"%d" % next(self.raw[partition]),
                TO: to.encode(),
                **header_fields,
            }
        )
        value = (data if isinstance(data, bytes) else orjson.dumps(data)) if to else None
        return Record((key or str(number)).encode(), value, headers)

    async def enriched(self, *records: Record, partition: int = 0) -> None:
        await self.producer.send_and_wait(self.topics.enriched, partition, records)

    async def send(self, count: int, to: str = "d", *, partition: int = 0, **header_fields: Any) -> list[str]:
        """Write events; returns their ids."""
        records = [self.record(to, partition=partition, **header_fields) for _ in range(count)]
        await self.enriched(*records, partition=partition)
        return [dict(record.headers)["ce_id"].decode() for record in records]

    async def read(self, topic: str) -> list[ConsumerRecord]:
        """All records of a topic, by partition and offset."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.kafka, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            tps = [TopicPartition(topic, number) for number in range(self.partitions)]
            consumer.assign(tps)
            end_offsets = await consumer.end_offsets(tps)
            records_by_partition: dict[TopicPartition, list[ConsumerRecord]] = {tp: [] for tp in tps}
            unread_partitions = [tp for tp in tps if end_offsets[tp]]
            while unread_partitions:
                for tp, records in (await consumer.getmany(*unread_partitions, timeout_ms=200)).items():
                    records_by_partition[tp] += records
                unread_partitions = [
                    tp for tp in unread_partitions if await consumer.position(tp) < end_offsets[tp]
                ]
            return [record for tp in tps for record in records_by_partition[tp]]
        finally:
            await consumer.stop()

    async def receipts(self, count: int, within_s: float = 60) -> list[dict[str, str]]:
        """The fields of the receipts, once there are `count`."""
        return [texts(record) for record in await self.at_least(self.topics.receipts, count, within_s)]

    async def at_least(self, topic: str, count: int, within_s: float = 60) -> list[ConsumerRecord]:
        async with asyncio.timeout(within_s):
            while len(records := await self.read(topic)) < count:
                await asyncio.sleep(0.05)
        return records

    async def committed(self, service: str = "egest") -> dict[TopicPartition, Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.kafka)
        await admin.start()
        try:
            return dict(await admin.list_consumer_group_offsets(self.topics.group(service)))
        finally:
            await admin.close()


def texts(record: ConsumerRecord | Record) -> dict[str, str]:
    """Headers, and the fields of packed ones, as text."""
    return {name: value.decode() for name, value in fields(record.headers).items()}


class RunningEgest:
    """Egest, running in this process."""

    def __init__(self, stream: EgestStream, **settings: Any) -> None:
        settings.setdefault("instance", "egest-" + uuid.uuid4().hex[:6])
        self.settings = EgestSettings(
            kafka=stream.kafka,
            stream=stream.topics.stream,
            tiers=stream.topics.tiers,
            commit_interval_s=0.1,
            **settings,
        )
        self.service = Service("egest", self.settings)
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> "RunningEgest":
        self.task = asyncio.create_task(egest(self.service, self.settings))
        await asyncio.sleep(0)  # it blocks readiness before its first await
        await until(lambda: self.service.health.ready or self.task.done())  # type: ignore[union-attr]
        if self.task.done():
            self.task.result()
        return self

    async def stop(self) -> None:
        """Stop as SIGTERM does."""
        self.service.stop()
        assert self.task is not None
        await self.task


@contextlib.asynccontextmanager
async def running_egest(stream: EgestStream, *pipes: Pipe, **settings: Any) -> AsyncIterator[RunningEgest]:
    """Egest on a stream, with pipes, while the block runs."""
    if pipes:
        await stream.publish(*pipes)
    service = await RunningEgest(stream, **settings).start()
    try:
        yield service
    finally:
        await service.stop()


def outcomes(receipts: Sequence[dict[str, str]]) -> list[str]:
    return [receipt[OUTCOME] for receipt in receipts]


class ServiceProcess:
    """A service as a separate process, to be killed or frozen."""

    def __init__(self, stream: EgestStream, log: Path, service: str, **settings: Any) -> None:
        variables = {
            "kafka": stream.kafka,
            "stream": stream.topics.stream,
            "tiers": TIERS,
            "commit_interval_s": 0.1,
        }
        environment = {f"HIFI_{name.upper()}": str(value) for name, value in (variables | settings).items()}
        self.log = log
        with log.open("ab") as file:
            self._popen = subprocess.Popen(
                [PROGRAMS / f"hifi-{service}"], env=os.environ | environment, stderr=file
            )

    def send(self, number: int) -> None:
        self._popen.send_signal(number)

    async def ready(self) -> None:
        """Wait until its partitions are assigned."""
        await until(lambda: b"partitions-changed" in self.log.read_bytes(), 60)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it with a signal; returns its exit status."""
        self._popen.send_signal(signal.SIGCONT)
        self._popen.send_signal(number)
        return self._popen.wait(30)


@contextlib.contextmanager
def process(
    stream: EgestStream, log: Path, service: str = "egest", **settings: Any
) -> Iterator[ServiceProcess]:
    """A service as a process while the block runs; killed at the end if it still runs."""
    service_process = ServiceProcess(stream, log, service, **settings)
    try:
        yield service_process
    finally:
        service_process.stop(signal.SIGKILL)
