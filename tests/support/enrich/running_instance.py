"""A stream on a real Kafka, and instances of enrich in the tests' process and Spark session."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from pyspark.sql import SparkSession
from tests.support.enrich.spark_bench import make_headers

from hifi.kafka.admin import create_topics
from hifi.kafka.group_offsets import GroupOffsets, StartOffsets
from hifi.kafka.leader_election import LeaderElection
from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeRegistry, publish, stream_record
from hifi.pipe.revision import pipe_record
from hifi.record.fields import fields
from hifi.record.headers import SEQ
from hifi.record.heartbeat import is_heartbeat
from hifi.record.record import Record
from hifi.runtime.service import Service
from hifi_enrich.lookup.tables import LookupTables
from hifi_enrich.query.engine import SparkEngine
from hifi_enrich.settings import EnrichSettings
from hifi_enrich.supervision.supervisor import Supervisor

PARTITIONS = 2
TIMEOUT_S = 100
"""For any wait; far above what a busy machine needs."""


class LiveStream:
    """A new stream on the broker."""

    def __init__(self, kafka: str) -> None:
        self.kafka = kafka
        self.topics = Topics(f"e{time.time_ns()}")
        self.sent = 0
        self.version = -1

    async def create(self, *pipes: Pipe) -> "LiveStream":
        await create_topics(self.kafka, self.topics, partitions=PARTITIONS, replication=1)
        await self.publish(stream_record(PARTITIONS), *map(pipe_record, pipes))
        return self

    async def publish(self, *records: Record) -> int:
        """The version that the last of these records has."""
        await publish(self.kafka, self.topics, records)
        self.version += len(records)
        return self.version

    async def send(self, *values: bytes, pipe: str = "p", version: int = 0) -> list[int]:
        """Append events to `normalized`, taking turns through the partitions; their numbers."""
        numbers = range(self.sent, self.sent + len(values))
        self.sent += len(values)
        records = [
            (number % PARTITIONS, Record(b"k%d" % number, value, make_headers(pipe, version, number)))
            for number, value in zip(numbers, values, strict=True)
        ]
        await self.append(self.topics.normalized, records)
        return list(numbers)

    async def append(self, topic: str, records: Sequence[tuple[int, Record]]) -> None:
        producer = Producer(self.kafka, "test")
        await producer.start()
        for partition in range(PARTITIONS):
            await producer.send_and_wait(
                topic, partition, [record for number, record in records if number == partition]
            )
        await producer.stop()

    async def read(self, topic: str) -> list[Any]:
        """Every record of a topic, partition by partition."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self.kafka)
        await consumer.start()
        try:
            tps = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
            consumer.assign(tps)
            await consumer.seek_to_beginning(*tps)
            end_offsets = await consumer.end_offsets(tps)
            records: list[Any] = []
            for tp in tps:
                while await consumer.position(tp) < end_offsets[tp]:
                    records += (await consumer.getmany(tp, timeout_ms=100)).get(tp, [])
            return records
        finally:
            await consumer.stop()

    async def outcomes(self, numbers: Sequence[int]) -> dict[int, list[Any]]:
        """Wait until every one of these events is in `enriched` or `dead-letter`; all but heartbeats, by number."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                records = await self.read(self.topics.enriched) + await self.read(self.topics.dead_letter)
                records_by_number: dict[int, list[Any]] = {}
                for record in records:
                    if is_heartbeat(record.headers):
                        continue
                    seq = fields(record.headers).get(SEQ, b":-1")
                    records_by_number.setdefault(int(seq.partition(b":")[2]), []).append(record)
                if set(numbers) <= set(records_by_number):
                    return records_by_number
                await asyncio.sleep(0.2)

    async def committed(self) -> dict[int, int]:
        return (await self._start_offsets()).offsets

    async def notes(self) -> dict[int, str]:
        """The metadata that enrich commits with its offsets, by partition."""
        return (await self._start_offsets()).notes

    async def _start_offsets(self) -> StartOffsets:
        async with GroupOffsets(
            self.kafka, "test", self.topics.group("enrich"), self.topics.normalized, PARTITIONS
        ) as offsets:
            return await offsets.start()

    async def caught_up(self) -> None:
        """Wait until everything in `normalized` is committed."""
        async with asyncio.timeout(TIMEOUT_S):
            while sum((await self.committed()).values()) < len(await self.read(self.topics.normalized)):
                await asyncio.sleep(0.2)


class EnrichInstance:
    """One instance of enrich."""

    def __init__(
        self, stream: LiveStream, spark: SparkSession, folder: Path, name: str = "one", **settings: Any
    ) -> None:
        self.settings = EnrichSettings(
            kafka=stream.kafka,
            stream=stream.topics.stream,
            instance=name,
            session_timeout_s=6,
            **{"enrich_batch_s": 5} | settings,
        )
        self.service = Service("enrich", self.settings)
        self.registry = PipeRegistry(stream.kafka, stream.topics, self.service.health)
        folder = folder / name
        folder.mkdir(exist_ok=True)
        self.tables = LookupTables(folder, self.service.health)
        self.engine = SparkEngine(self.settings, stream.topics, self.registry, self.tables, folder)
        self.election = LeaderElection(
            self.settings, stream.topics.group("enrich-leader"), stream.topics.enrich_leader
        )
        self.supervisor = Supervisor(
            self.service, self.settings, stream.topics, self.registry, self.engine, self.election, self.tables
        )
        self.tables.on_change(self.supervisor.lookups_changed)
        self._spark = spark
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        return self.service.health.state

    @property
    def waiting(self) -> str:
        return " ".join(self.service.health.waiting.values())

    async def start(self) -> None:
        await self.registry.start()
        await self.engine.start(PARTITIONS, self._spark)
        self._task = asyncio.create_task(self.supervisor.run())

    async def stop(self) -> None:
        """Stop in order, as on SIGTERM."""
        self.service.stop()
        if self._task is not None:
            await self._task
        await self._end()

    async def kill(self) -> None:
        """End without order, as on SIGKILL: the query is cut off and nothing more is committed."""
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        for query in self._spark.streams.active:
            query.stop()
        await self._end()

    async def _end(self) -> None:
        await self.registry.stop()
        await self.tables.stop()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                assert self._task is not None
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.02)

    async def until_state(self, state: str) -> None:
        await self.until(lambda: self.state == state and (state == "waiting" or self.service.health.ready))


@contextlib.asynccontextmanager
async def running_enrich(
    stream: LiveStream, spark: SparkSession, folder: Path, name: str = "one", **settings: Any
) -> AsyncIterator[EnrichInstance]:
    """An instance while the block runs, stopped in order."""
    instance = EnrichInstance(stream, spark, folder, name, **settings)
    await instance.start()
    try:
        yield instance
    finally:
        await instance.stop()
