"""Targets of a measured step: counts of arrivals, and the time of each."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import psycopg
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from pyarrow import parquet

from hifi.kafka.admin import partition_counts
from hifi.kafka.topic_reader import read_ranges

TABLE: Final = """
    CREATE TABLE orders (
      id integer {key}, total double precision, note text, hifi_log uuid, hifi_partition integer, hifi_offset bigint,
      hifi_accepted timestamptz,
      written timestamptz DEFAULT clock_timestamp() {unique}
    )
"""


WARM_SHARE: Final = 0.2
"""Of the events, which do not count for a rate."""


def last_rate(times_s: Sequence[float]) -> float:
    """Events a second, without the first ones.

    Args:
        times_s: when each event was written, seconds.
    """
    times = sorted(times_s)
    warm_count = int(len(times) * WARM_SHARE)
    return (len(times) - warm_count) / (times[-1] - times[warm_count])


class Target(Protocol):
    """A place that gets events."""

    async def count(self) -> int:
        """Number of events now; it may count what is not visible yet."""

    async def times_s(self) -> Sequence[float]:
        """The time at which each event was written, seconds since 1970 UTC."""


class TopicTarget:
    """A topic whose records have the time at which the broker appended them."""

    def __init__(self, kafka: str, topic: str) -> None:
        self.topic = topic
        self._kafka = kafka

    async def create(self, partitions: int) -> None:
        """Create the topic."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self._kafka)
        await admin.start()
        config = {"message.timestamp.type": "LogAppendTime"}
        await admin.create_topics([NewTopic(self.topic, partitions, 1, topic_configs=config)])
        await admin.close()

    async def count(self) -> int:
        return sum(len(offsets) for offsets in (await self._ranges()).values())

    async def times_s(self) -> Sequence[float]:
        ranges, times = await self._ranges(), []
        async with self._consumer() as consumer:
            async for records in read_ranges(consumer, ranges, max_records=10_000):
                times += [record.timestamp / 1000 for record in records]
        return times

    async def _ranges(self) -> Mapping[TopicPartition, range]:
        count = (await partition_counts(self._kafka, [self.topic]))[self.topic] or 0
        partitions = [TopicPartition(self.topic, number) for number in range(count)]
        async with self._consumer() as consumer:
            end_offsets = await consumer.end_offsets(partitions)
        return {tp: range(end) for tp, end in end_offsets.items()}

    def _consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self._kafka, isolation_level="read_committed", enable_auto_commit=False
        )


class TableTarget:
    """The table `orders` of a database, made anew; each row has the time of its insertion."""

    def __init__(self, url: str, *, append: bool) -> None:
        self._url = url
        unique = ", UNIQUE (hifi_log, hifi_partition, hifi_offset)" if append else ""
        statement = TABLE.format(key="" if append else "PRIMARY KEY", unique=unique)
        with psycopg.connect(url) as connection:
            connection.execute("DROP TABLE IF EXISTS orders")
            connection.execute(statement)

    async def count(self) -> int:
        return len(await self.times_s())

    async def times_s(self) -> Sequence[float]:
        async with await psycopg.AsyncConnection.connect(self._url) as connection:
            cursor = await connection.execute("SELECT extract(epoch FROM written)::float8 FROM orders")
            return [at_s for (at_s,) in await cursor.fetchall()]


class FolderTarget:
    """Files of a folder, each with the time at which it was written."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self._kind = kind
        self._rows: dict[Path, int] = {}

    async def count(self) -> int:
        return await asyncio.to_thread(self._read)

    async def times_s(self) -> Sequence[float]:
        await self.count()
        return [file.stat().st_mtime for file, rows in self._rows.items() for _ in range(rows)]

    def _read(self) -> int:
        for file in self.folder.rglob(f"[!.]*.{self._kind}"):
            if file not in self._rows:
                self._rows[file] = (
                    parquet.read_metadata(file).num_rows
                    if self._kind == "parquet"
                    else file.read_bytes().count(b"\n")
                )
        return sum(self._rows.values())
