"""Write the events of one partition in transactions, each event once.

A transaction has the records of a batch and their positions. Its transactional id is that of the partition, so a new
owner of the partition ends the last transaction of the old one and fences it, and then reads which events were written.

It does not use `hifi.kafka.fenced_writer`, which writes the few records of control topics one by one to hifi's own
cluster: here whole batches are built outside of aiokafka's queue, for another cluster with security of its own, and
what Kafka answers decides between smaller batches, a dead letter, and an unknown outcome.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from hifi.delivery.kind import OutboundEvent
from hifi.delivery.written_offsets import WrittenOffsets
from hifi.kafka.batches import begin_transaction, build_batches, forget_errors, retrieve_error
from hifi.kafka.clients import close, may_arrive_late, transactional_producer
from hifi.record.partitioner import partition_of
from hifi.runtime.errors import Rejected, Retryable, Unacknowledged
from hifi_kafka.declaration import KafkaDestinationSettings
from hifi_kafka.destination.positions import Position, PositionReader
from hifi_kafka.destination.records import DestinationRecord

RETRIED: Final = b"retried"
_TRANSACTION_S: Final = 30


class TransactionalPartition:
    """One line of one partition at the destination cluster, over a producer of its own."""

    def __init__(
        self,
        settings: KafkaDestinationSettings,
        pipe: str,
        position: Position,
        reader: PositionReader,
    ) -> None:
        """Start without a producer.

        Args:
            settings: of the destination.
            pipe: name.
            position: of the partition and line.
            reader: of positions.
        """
        self._settings, self._pipe = settings, pipe
        self._topic, self._positions_topic = settings.topic, settings.positions_topic
        self._position = position
        self._reader = reader
        self._lock = asyncio.Lock()
        self._producer: AIOKafkaProducer | None = None
        self._written_offsets: dict[bytes, WrittenOffsets] = {}
        self._read_through = 0
        self._batch_bytes = 0
        self._failed = False
        """Whether the last write failed: the topic may be gone."""
        self._closing: set[asyncio.Task[None]] = set()

    async def write(self, events: Sequence[tuple[OutboundEvent, DestinationRecord]]) -> None:
        """Write those events that are not written yet, in one transaction; again if Kafka wants smaller batches."""
        async with self._lock:
            while not await self._write(events):
                pass

    async def _write(self, events: Sequence[tuple[OutboundEvent, DestinationRecord]]) -> bool:
        """Write events; returns whether they are written: if not, smaller batches may be."""
        committing = False
        try:
            producer = await self._ready_producer()
            missing_records = {
                event.offset: record for event, record in events if not self._is_written(event.offset)
            }
            if not missing_records:
                return True
            line_offsets = self._written_offsets.setdefault(self._position.line, WrittenOffsets())
            bitmaps = line_offsets.with_offsets(missing_records)
            await self._send(producer, list(missing_records.values()), bitmaps)
            committing = True
            await producer.commit_transaction()
        except BaseException as error:
            self._discard()
            self._failed = True
            if isinstance(error, MessageSizeTooLargeError):
                if await self._reader.topic_limit.lower(self._batch_bytes):
                    return False
                raise Rejected("too-large", "the cluster refuses a record of this size") from error
            if isinstance(error, KafkaError):
                raise _failure(error, committing=committing) from error
            raise
        if may_arrive_late(producer):
            self._discard()
        for chunk, bitmap in bitmaps.items():
            line_offsets.merge(chunk, bitmap)
        self._failed = False
        return True

    async def stop(self) -> None:
        """Close the producer. No write is under way."""
        self._discard()
        if self._closing:
            await asyncio.wait(self._closing)

    async def _ready_producer(self) -> AIOKafkaProducer:
        """The producer, once it is known what was written."""
        producer = self._producer
        if producer is None:
            if self._failed:
                await self._reader.require_topic()
            self._batch_bytes = self._reader.topic_limit.batch_bytes
            producer = transactional_producer(
                self._settings.bootstrap,
                (b"hifi;" + self._position.owner + self._position.line).decode(),
                f"hifi-{self._pipe}",
                timeout_s=_TRANSACTION_S,
                security=self._settings.security,
                pipe=self._pipe,
                max_batch_size=self._batch_bytes,
            )
            self._producer = producer
            # Ends the last transaction with this id, and fences the producer that began it.
            await producer.start()
            self._written_offsets, self._read_through = {}, 0
            await self._read()
            # Both at once: aiokafka forgets a topic that it knew at its start when it meets a new one.
            await producer.client.set_topics([self._topic, self._positions_topic])
        elif self._position.line == RETRIED:
            # The event may have been written by the owner of the other line, which may be another instance.
            await self._read()
        return producer

    async def _read(self) -> None:
        self._read_through = await self._reader.read(
            self._position, self._read_through, self._written_offsets
        )

    def _is_written(self, offset: int) -> bool:
        return any(offset in line_offsets for line_offsets in self._written_offsets.values())

    async def _send(
        self, producer: AIOKafkaProducer, records: Sequence[DestinationRecord], bitmaps: dict[int, bytes]
    ) -> None:
        await begin_transaction(producer)
        partition = self._position.partition(self._reader.partitions)
        send_futures: list[asyncio.Future[Any]] = []
        try:
            for number, batch_records in (await self._by_partition(producer, records)).items():
                for batch in build_batches(producer, batch_records):
                    batch_future = await producer.send_batch(batch, self._topic, partition=number)
                    send_futures.append(batch_future)
                    # It shields one of the batch, whose error nobody sees once this one is cancelled.
                    forget_errors(producer)
            for chunk, bitmap in bitmaps.items():
                position = self._position.key(chunk)
                send_futures.append(
                    await producer.send(self._positions_topic, bitmap, key=position, partition=partition)
                )
        except BaseException:
            for future in send_futures:  # nothing waits for them any more
                future.add_done_callback(retrieve_error)
                future.cancel()
            raise
        await asyncio.gather(*send_futures)

    async def _by_partition(
        self, producer: AIOKafkaProducer, records: Sequence[DestinationRecord]
    ) -> dict[int, list[DestinationRecord]]:
        """Records by partition of the topic, as Kafka's clients choose it; those without a key have one together."""
        partitions = sorted(await producer.partitions_for(self._topic))
        by_partition: dict[int, list[DestinationRecord]] = {}
        keyless_partition: int | None = None
        for record in records:
            if record.key is not None:
                number = partition_of(record.key, len(partitions))
            else:
                if keyless_partition is None:
                    available_partitions = producer.client.cluster.available_partitions_for_topic(self._topic)
                    keyless_partition = random.choice(sorted(available_partitions or partitions))  # noqa: S311 - spreads records
                number = keyless_partition
            by_partition.setdefault(number, []).append(record)
        return by_partition

    def _discard(self) -> None:
        """Give up the producer; the next one ends its transaction."""
        if self._producer is not None:
            task = asyncio.create_task(_close(self._producer))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
            self._producer = None


async def _close(producer: AIOKafkaProducer) -> None:
    await close(producer, timeout_s=1)
    forget_errors(producer)


def _failure(error: KafkaError, *, committing: bool) -> Retryable:
    name = type(error).__name__
    if committing:
        return Unacknowledged(f"Kafka did not acknowledge the transaction: {name}")
    return Retryable(f"Kafka at the destination: {name}")
