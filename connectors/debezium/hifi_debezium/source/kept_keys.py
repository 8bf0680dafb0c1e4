"""The keys of all rows that the changes of a source have told of, in a compacted topic beside that of the changes.

A key is written with the offset of its row's last change, and removed when the row is deleted. An update tells of a
row, too: a snapshot leaves out rows that a concurrent TRUNCATE has removed, and earlier updates of them follow it. So
the rows that a TRUNCATE or a new snapshot has left out are known, and each one becomes a delete. A reader that has gone
back writes the same again.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from hifi.kafka.admin import create_topic, known_partitions
from hifi.kafka.clients import close, connect, topic_consumer
from hifi.kafka.security import KafkaSecurity, client_options
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.runtime import exact_json
from hifi.runtime.errors import Retryable

_PARTITIONS: Final = 8
"""The keys of one are in memory at once."""
_BATCH_BYTES: Final = 512 * 1024
_MOST_WAIT_MS: Final = 20
"""A fetch at the end of a partition delays the next partition by as much."""
_END_OF_TABLE: Final = b"\0"


class RowKey(NamedTuple):
    """The key of a row.

    Attributes:
        table: as `SCHEMA.TABLE`.
        record_key: key of the records of its changes.
        values: by column, as events have them.
    """

    table: str
    record_key: bytes
    values: Mapping[str, Any]


class KeyChange(NamedTuple):
    """What a record of the topic of changes says of a key.

    Attributes:
        key: of the row; without `record_key` it is a mark, see `KeptKeys.mark`.
        offset: of the record.
        present: whether there is a row with the key now.
    """

    key: RowKey
    offset: int
    present: bool


class LeftKey(NamedTuple):
    """A key that was last told of before some offset.

    Attributes:
        key: of the row.
        offset: of the record that told of it.
    """

    key: RowKey
    offset: int


class KeptKeys:
    """The topic of one source."""

    def __init__(self, bootstrap: str, topic: str, security: KafkaSecurity) -> None:
        """Nothing is connected yet.

        Args:
            bootstrap: of the cluster with the changes.
            topic: of the keys.
            security: of the connections.
        """
        self.topic: Final = topic
        self._bootstrap, self._security = bootstrap, security
        self._producer: AIOKafkaProducer | None = None
        self._turn = asyncio.Lock()

    async def provide(self) -> None:
        """Create the topic if it is missing.

        Raises:
            Retryable: Kafka does not answer, or refuses.
        """
        admin = AIOKafkaAdminClient(**client_options(self._bootstrap, self._security))
        try:
            await admin.start()
            if self.topic not in await admin.list_topics():
                await create_topic(admin, self.topic, _PARTITIONS, {"cleanup.policy": "compact"})
            await known_partitions(admin, self.topic)
        except (KafkaError, OSError) as error:
            raise Retryable(
                f"the topic {self.topic} with the keys of rows cannot be created: {error!r}"
            ) from error
        finally:
            await admin.close()

    async def write(self, changes: Sequence[KeyChange]) -> None:
        """Write what changes say of keys, and return when Kafka has acknowledged it. Calls are done in their order.

        Raises:
            aiokafka.errors.KafkaError: Kafka has not acknowledged it.
        """
        async with self._turn:
            producer = await self._started()
            by_partition: dict[int, list[tuple[bytes, bytes | None]]] = {}
            for key, offset, present in changes:
                name = _name(key)
                value = exact_json.dumps([offset, key.values]) if present else None
                by_partition.setdefault(zlib.crc32(name) % _PARTITIONS, []).append((name, value))
            try:
                await asyncio.gather(
                    *(self._send(producer, partition, records) for partition, records in by_partition.items())
                )
            except KafkaError:
                await self.close()  # aiokafka refuses all later batches (its issue 1017)
                raise

    async def _send(
        self, producer: AIOKafkaProducer, partition: int, records: Iterable[tuple[bytes, bytes | None]]
    ) -> None:
        batch, acknowledged = producer.create_batch(), []
        for name, value in records:
            if batch.append(key=name, value=value, timestamp=None) is None:
                acknowledged.append(await producer.send_batch(batch, self.topic, partition=partition))
                batch = producer.create_batch()
                batch.append(key=name, value=value, timestamp=None)
        acknowledged.append(await producer.send_batch(batch, self.topic, partition=partition))
        await asyncio.gather(*acknowledged)

    async def left(self, tables: Mapping[str, int]) -> AsyncIterator[tuple[int, list[LeftKey]]]:
        """Keys that were last told of before an offset, by partition and in the order of their offsets.

        Args:
            tables: to the offset.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka does not answer.
        """
        prefixes = {table.encode() + _END_OF_TABLE: offset for table, offset in tables.items()}
        async with self._turn, self._consumer() as consumer:
            for partition in range(_PARTITIONS):
                tp = TopicPartition(self.topic, partition)
                last: dict[bytes, bytes] = {}
                async for records in read_ranges(consumer, await offset_ranges(consumer, [tp])):
                    for record in records:
                        prefix, end, _ = record.key.partition(_END_OF_TABLE)
                        before = prefixes.get(prefix + end)
                        if before is None:
                            continue
                        if (
                            record.value is not None
                            and int(record.value[1 : record.value.index(b",")]) < before
                        ):
                            last[record.key] = record.value
                        else:
                            last.pop(record.key, None)
                yield (
                    partition,
                    sorted(
                        (_left(name, value) for name, value in last.items()), key=lambda left: left.offset
                    ),
                )

    async def marks(self) -> dict[str, tuple[int, Mapping[str, Any]]]:
        """Marks to their offsets and values.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka does not answer.
        """
        marks: dict[str, tuple[int, Mapping[str, Any]]] = {}
        async with self._turn, self._consumer() as consumer:
            tps = [TopicPartition(self.topic, partition) for partition in range(_PARTITIONS)]
            async for records in read_ranges(consumer, await offset_ranges(consumer, tps)):
                for record in records:
                    if record.key.endswith(_END_OF_TABLE) and record.value is not None:
                        offset, values = exact_json.loads(record.value)
                        marks[record.key[:-1].decode()] = offset, values
        return marks

    async def close(self) -> None:
        """Close the connection."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await close(producer)

    def _consumer(self) -> AbstractAsyncContextManager[AIOKafkaConsumer]:
        return topic_consumer(self._bootstrap, security=self._security, fetch_max_wait_ms=_MOST_WAIT_MS)

    async def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            producer = AIOKafkaProducer(
                **client_options(self._bootstrap, self._security),
                acks="all",
                enable_idempotence=True,
                max_batch_size=_BATCH_BYTES,
            )
            await connect(producer.start)
            self._producer = producer
        return self._producer


def mark(name: str, values: Mapping[str, Any] | None = None) -> RowKey:
    """A name that is kept with an offset, and with values, as keys are."""
    return RowKey(name, b"", values or {})


def _name(key: RowKey) -> bytes:
    return key.table.encode() + _END_OF_TABLE + key.record_key


def _left(name: bytes, value: bytes) -> LeftKey:
    table, _, record_key = name.partition(_END_OF_TABLE)
    offset, values = exact_json.loads(value)
    return LeftKey(RowKey(table.decode(), record_key, values), offset)
