"""The keys of all rows that the changes of a source have told of, in a compacted topic beside that of the changes.

A key is written with the offset of its row's last change, and removed when the row is deleted. An update tells of a
row, too: a snapshot leaves out rows that a concurrent TRUNCATE has removed, and earlier updates of them follow it. So
the rows that a TRUNCATE or a new snapshot has left out are known, and each one becomes a delete. A reader that has gone
back writes the same again.

The topic of the changes may be deleted and created again. A mark has its id, and the ends of the partitions when that
id was first seen: keys before them come from an earlier topic, whose offsets mean nothing in this one.

`hifi.kafka.producer.Producer` and `hifi.kafka.topic_follower` do not fit: they use the stream's own Kafka, not that of
the changes; the one sends again until Kafka answers, where a write here fails, since another reader may own the
partition by then; and the other reads a record once, where each snapshot or TRUNCATE reads the keys from the start.
"""

import asyncio
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from hifi.kafka.admin import create_topic, known_partitions
from hifi.kafka.clients import close, connect, plain_producer, started_admin, topic_consumer
from hifi.kafka.security import KafkaSecurity
from hifi.kafka.topic_identity import topic_identity
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.runtime import log
from hifi.runtime.errors import Retryable
from hifi_debezium.source.key_records import (
    KeyRecord,
    LeftKey,
    is_mark,
    left_key,
    mark_record,
    offset_of,
    prefix_of,
    read_mark,
    table_prefix,
)
from hifi_debezium.source.snapshot_marks import Marks, earlier_marks_below

PARTITIONS: Final = 8
"""Those with keys. The keys of one are in memory at once."""
_MARKS: Final = PARTITIONS
"""The partition with the marks, which is read often."""
_BATCH_BYTES: Final = 512 * 1024
_MOST_WAIT_MS: Final = 20
"""A fetch at the end of a partition delays the next partition by as much."""

_CHANGES: Final = "topic of the changes"
"""Mark with the `id` of the topic of the changes, and the `ends` of the partitions when it was first seen."""
_NO_ENDS: Final = (0,) * (PARTITIONS + 1)

logger = log.get(__name__)


class KeptKeys:
    """The topic of one source."""

    def __init__(self, bootstrap: str, topic: str, security: KafkaSecurity, pipe: str) -> None:
        """Start without a connection.

        Args:
            bootstrap: of the cluster with the changes.
            topic: of the keys.
            security: of the connections.
            pipe: that declares it; see `client_options`.
        """
        self.topic: Final = topic
        self._bootstrap, self._security, self._pipe = bootstrap, security, pipe
        self._producer: AIOKafkaProducer | None = None
        self._read_lock = asyncio.Lock()
        self._failed_writes = 0
        self._ends: Sequence[int] = _NO_ENDS
        """Offsets by partition before which records tell of an earlier topic of the changes."""

    async def provide(self) -> str:
        """Create the topic if it is missing; returns its id.

        Raises:
            Retryable: Kafka does not answer, or refuses.
        """
        try:
            async with started_admin(
                self._bootstrap, f"hifi-{self._pipe}", security=self._security, pipe=self._pipe
            ) as admin:
                if self.topic not in await admin.list_topics():
                    await create_topic(admin, self.topic, PARTITIONS + 1, {"cleanup.policy": "compact"})
                await known_partitions(admin, self.topic)
                return await self.topic_id()
        except (KafkaError, OSError) as error:
            raise Retryable(
                f"the topic {self.topic} with the keys of rows cannot be created: {error!r}"
            ) from error

    async def topic_id(self, topic: str = "") -> str:
        """The id of the topic, or of another one of its cluster; empty: it is missing, or has none.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka does not answer.
        """
        try:
            identity = await topic_identity(self._bootstrap, topic or self.topic, self._security, self._pipe)
            return identity.topic
        except UnknownTopicOrPartitionError:
            return ""

    async def write(self, records: Iterable[KeyRecord]) -> None:
        """Write the last record of each key, and return when Kafka has acknowledged it. Calls are done in their order.

        Raises:
            aiokafka.errors.KafkaError: Kafka has not acknowledged it, or those of a call that was not done yet: the
                caller may no longer own the partition of the changes when that is known.
        """
        failed_writes = self._failed_writes
        async with self._read_lock:
            if self._failed_writes != failed_writes:
                raise KafkaError(f"earlier keys were not written to {self.topic}")
            producer = await self._started()
            by_partition: list[dict[bytes, bytes | None]] = [{} for _ in range(PARTITIONS + 1)]
            for name, value in records:
                partition = _MARKS if is_mark(name) else zlib.crc32(name) % PARTITIONS
                by_partition[partition][name] = value
            try:
                await asyncio.gather(
                    *(
                        self._send(producer, partition, last)
                        for partition, last in enumerate(by_partition)
                        if last
                    )
                )
            except KafkaError:
                self._failed_writes += 1
                await self.close()  # aiokafka refuses all later batches (its issue 1017)
                raise

    async def _send(
        self, producer: AIOKafkaProducer, partition: int, last: Mapping[bytes, bytes | None]
    ) -> None:
        batch, acknowledgements = producer.create_batch(), []
        for name, value in last.items():
            if batch.append(key=name, value=value, timestamp=None) is None:
                acknowledgements.append(await producer.send_batch(batch, self.topic, partition=partition))
                batch = producer.create_batch()
                batch.append(key=name, value=value, timestamp=None)
        acknowledgements.append(await producer.send_batch(batch, self.topic, partition=partition))
        await asyncio.gather(*acknowledgements)

    async def left(self, partition: int, tables: Mapping[str, int]) -> list[LeftKey]:
        """Keys of one of the `PARTITIONS` that were last told of before an offset, in the order of their offsets.

        Those that an earlier topic of the changes told of last come first, by the last `marks` or `marks_of`.

        Args:
            partition: number.
            tables: to the offset.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka does not answer.
        """
        end_offsets = {table_prefix(table): offset for table, offset in tables.items()}
        last_values: dict[bytes, tuple[int, bytes]] = {}
        async with self._read_lock, self._consumer() as consumer:
            ranges = await offset_ranges(consumer, [TopicPartition(self.topic, partition)])
            async for records in read_ranges(consumer, ranges):
                for record in records:
                    try:
                        end_offset = end_offsets.get(prefix_of(record.key))
                        if end_offset is None:
                            continue
                        if record.value is not None and (
                            record.offset < self._ends[partition] or offset_of(record.value) < end_offset
                        ):
                            last_values[record.key] = record.offset, record.value
                        else:
                            last_values.pop(record.key, None)
                    except ValueError as error:
                        self._tell_unreadable(partition, error, offset=record.offset)
        left_keys = list[LeftKey]()
        for name, (kept_offset, value) in last_values.items():
            try:
                row_key = left_key(name, value)
            except ValueError as error:
                self._tell_unreadable(partition, error, table=prefix_of(name)[:-1])
            else:
                if kept_offset < self._ends[partition]:
                    row_key = row_key._replace(offset=kept_offset, earlier=True)
                left_keys.append(row_key)
        left_keys.sort(key=lambda row_key: (not row_key.earlier, row_key.offset))
        return left_keys

    async def marks_of(self, changes_id: str) -> Marks:
        """As `marks`; what was kept before is of an earlier topic, if the topic of the changes had another id then.

        Args:
            changes_id: of the topic of the changes; empty: not known, so it counts as the one before.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka does not answer.
        """
        marks = await self.marks()
        _, values = marks.get(_CHANGES, (0, {}))
        if not changes_id or values.get("id") == changes_id:
            return marks
        ends = await self._end_offsets() if "id" in values else [*_NO_ENDS]
        await self.write([mark_record(_CHANGES, 0, {"id": changes_id, "ends": ends})])
        if any(ends):
            logger.warning("changes-created-again", pipe=self._pipe, topic=self.topic, ends=ends)
        return await self.marks()

    async def _end_offsets(self) -> list[int]:
        partitions = [TopicPartition(self.topic, partition) for partition in range(PARTITIONS + 1)]
        async with self._read_lock, self._consumer() as consumer:
            end_offsets = await consumer.end_offsets(partitions)
        return [end_offsets[topic_partition] for topic_partition in partitions]

    async def marks(self) -> Marks:
        """Marks to their offsets and values; see `EARLIER` for those of an earlier topic of the changes.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka does not answer.
        """
        marks: Marks = {}
        kept_offsets: dict[str, int] = {}
        async with self._read_lock, self._consumer() as consumer:
            ranges = await offset_ranges(consumer, [TopicPartition(self.topic, _MARKS)])
            async for records in read_ranges(consumer, ranges):
                for record in records:
                    try:
                        name, offset, values = read_mark(record.key, record.value)
                    except ValueError as error:
                        self._tell_unreadable(_MARKS, error, offset=record.offset)
                    else:
                        marks[name], kept_offsets[name] = (offset, values), record.offset
        _, values = marks.get(_CHANGES, (0, {}))
        self._ends = values.get("ends", _NO_ENDS)
        return earlier_marks_below(marks, kept_offsets, self._ends[_MARKS])

    def _tell_unreadable(self, partition: int, error: ValueError, **where: Any) -> None:
        """Log that a record is passed over which hifi has not written, such as one that a person has."""
        logger.warning(
            "kept-key-unreadable",
            pipe=self._pipe,
            topic=self.topic,
            partition=partition,
            error=str(error),
            **where,
        )

    async def close(self) -> None:
        """Close the connection."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await close(producer)

    def _consumer(self) -> AbstractAsyncContextManager[AIOKafkaConsumer]:
        return topic_consumer(
            self._bootstrap,
            f"hifi-{self._pipe}",
            security=self._security,
            pipe=self._pipe,
            fetch_max_wait_ms=_MOST_WAIT_MS,
        )

    async def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            producer = plain_producer(
                self._bootstrap,
                f"hifi-{self._pipe}",
                security=self._security,
                pipe=self._pipe,
                max_batch_size=_BATCH_BYTES,
            )
            await connect(producer.start)
            self._producer = producer
        return self._producer
