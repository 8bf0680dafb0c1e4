"""A stream on a real Kafka with a test double of the services that writes what they would, except for lost events."""

import asyncio
import secrets
from collections.abc import Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata
from tests.support.observe_principal import create_principals

from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish, stream_record
from hifi.pipe.revision import pipe_record
from hifi.record.cloudevents.timestamps import format_us
from hifi.record.fields import packed
from hifi.record.headers import (
    ACCEPTED,
    ANSWERED,
    DESTINATION,
    IN,
    MINUTE,
    OUTCOME,
    PIPE,
    REVISION,
    REVISION_OFFSET,
    SENT,
    SEQ,
    SOURCE,
    STATUS,
    TIME,
    TO,
    WATCH,
)
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi.runtime.health import Health
from hifi.runtime.http import server
from hifi_observe.observer import Observer
from hifi_observe.settings import ObserveSettings

PARTITIONS = 2


def pipe(name: str = "flights", p95_s: float = 100_000, **overrides: Any) -> Pipe:
    return Pipe.model_validate(
        {
            "pipe": name,
            "source": {"keys": [{"env": "KEY"}]},
            "destinations": [{"name": "crm", "url": "http://127.0.0.1:9/"}],
            "slo": {"p95": p95_s, "loss": 0},
        }
        | overrides
    )


Fields = dict[str, bytes]
"""Of a record, as `hifi.record.fields` shows them."""


def added(now: bytes) -> dict[str, Fields]:
    """Each topic on the way of a delivered event to what its service adds; `now` in microseconds since 1970 UTC."""
    return {
        "raw": {},
        "normalized": {},
        "enriched": {TO: b"crm"},
        "receipts": {
            DESTINATION: b"crm",
            OUTCOME: b"delivered",
            SOURCE: b"enriched:0",
            STATUS: b"200",
            SENT: now,
            ANSWERED: now,
        },
    }


@dataclass
class Stream:
    """The topics of one stream and the double that fills them."""

    kafka: str
    topics: Topics
    producer: Producer
    epoch: str = field(default_factory=lambda: secrets.token_hex(8))
    sequences: list[int] = field(default_factory=lambda: [0] * PARTITIONS)

    def fields(self, partition: int, minute: int, name: str = "flights") -> Fields:
        """Of a new event."""
        sequence = self.sequences[partition]
        self.sequences[partition] += 1
        now = b"%d" % now_us()
        return {
            PIPE: name.encode(),
            REVISION: b"1",
            REVISION_OFFSET: b"1",
            SEQ: f"{self.epoch}:{sequence}".encode(),
            ACCEPTED: now,
            MINUTE: b"%d" % minute,
            IN: now,
            "ce_id": f"id-{partition}-{sequence}".encode(),
        }

    async def write(
        self, name: str, partition: int, fields: list[Fields], values: list[bytes] | None = None
    ) -> None:
        records = [
            Record(b"k", values[n] if values else b"{}", packed(event_fields))
            for n, event_fields in enumerate(fields)
        ]
        await self.producer.send_and_wait(f"{self.topics.stream}.{name}", partition, records)

    async def size(self, name: str) -> int:
        """Records that a topic took, named without the stream."""
        tps = [TopicPartition(f"{self.topics.stream}.{name}", number) for number in range(PARTITIONS)]
        consumer = AIOKafkaConsumer(bootstrap_servers=self.kafka, enable_auto_commit=False)
        await consumer.start()
        try:
            return sum((await consumer.end_offsets(tps)).values())
        finally:
            await consumer.stop()

    async def events(
        self,
        partition: int,
        minute: int,
        count: int,
        *,
        lose: dict[str, Collection[int]] | None = None,
        name: str = "flights",
        watch: list[bytes] | None = None,
        times_us: list[int] | None = None,
    ) -> list[Fields]:
        """Bring events to the destination.

        `lose`: topic to the positions of events that never reach it; `watch`: what enrich adds for watched fields;
        `times_us`: event times, microseconds since 1970 UTC.
        """
        lose = lose or {}
        batch = [self.fields(partition, minute, name) for _ in range(count)]
        for event_fields, time_us in zip(batch, times_us or (), strict=bool(times_us)):
            event_fields[TIME] = format_us(time_us)
        first = int(batch[0][SEQ].partition(b":")[2])
        tally = {
            "epoch": self.epoch,
            "pipes": {name: {str(minute): [[first, first + count - 1]]}},
            "closed": False,
        }
        alive = list(range(count))
        now = b"%d" % now_us()
        for topic, added_fields in added(now).items():
            alive = [position for position in alive if position not in lose.get(topic, ())]
            if alive:
                fields = [batch[position] | added_fields for position in alive]
                if watch and topic == "enriched":
                    fields = [
                        event_fields | {WATCH: watch[n]}
                        for n, event_fields in zip(alive, fields, strict=True)
                    ]
                await self.write(topic, partition, fields)
        await self.write("accepted", partition, [{}], [orjson.dumps(tally)])
        return batch

    async def commit(self, partition: int, *services: str, note: str = "") -> None:
        """The services commit all that there is, with a note beside the offsets."""
        reads = {"normalize": "raw", "enrich": "normalized", "egest": "enriched"}
        for service in services or reads:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.kafka, group_id=self.topics.group(service), enable_auto_commit=False
            )
            await consumer.start()
            tp = TopicPartition(f"{self.topics.stream}.{reads[service]}", partition)
            consumer.assign([tp])
            end = (await consumer.end_offsets([tp]))[tp]
            await consumer.commit({tp: OffsetAndMetadata(end, note)})
            await consumer.stop()

    @asynccontextmanager
    async def observing(self, *, wait_for_principals: bool = True, **overrides: Any):
        """A running instance of observe, with its URL."""
        options = {
            "observe_settle_s": 0,
            "observe_snapshot_interval_s": 0.05,
            "observe_amend_interval_s": 0.1,
            "observe_live_interval_s": 0.2,
            "observe_heartbeat_gap_s": 100,
        }
        settings = ObserveSettings(
            kafka=self.kafka, stream=self.topics.stream, instance=secrets.token_hex(4), **options | overrides
        )
        observer = Observer(settings, Health("observe", settings.instance))
        sock = server.listen("127.0.0.1", 0)
        async with server.serve(observer.application(), sock, drain_s=1):
            await observer.start()
            async with asyncio.timeout(60):
                while wait_for_principals and not observer.principals.read:
                    await asyncio.sleep(0.02)
            running = asyncio.create_task(observer.run())
            try:
                yield observer, f"http://127.0.0.1:{sock.getsockname()[1]}"
            finally:
                running.cancel()
                await asyncio.wait([running])
                await observer.stop()


@asynccontextmanager
async def new_stream(kafka: str, *pipes: Pipe):
    """A fresh stream with pipes, one by default."""
    topics = Topics(f"t{secrets.token_hex(4)}")
    await create_topics(kafka, topics, partitions=PARTITIONS, replication=1)
    await create_principals(kafka, topics.stream)
    await publish(
        kafka,
        topics,
        [stream_record(PARTITIONS), *(pipe_record(declared_pipe) for declared_pipe in pipes or (pipe(),))],
    )
    producer = Producer(kafka, "double")
    await producer.start()
    try:
        yield Stream(kafka, topics, producer)
    finally:
        await producer.stop()
