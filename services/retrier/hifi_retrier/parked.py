"""Bring parked deliveries back when their destination is resumed, or make dead letters of them.

The retrier reads `parked` once as it is written and notes, for each destination and partition, where its deliveries
begin. When the destination is active again, they are read from there, without those that others parked before, and
go to `retry-out` in small chunks: the next chunk follows when egest has committed past the last one. So they come
back at the rate of the destination, and few are copied if it fails again. Progress is kept on the topic `destinations`
after Kafka has acknowledged a chunk: a retrier that dies repeats one chunk at most, which egest drops as copies.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from hifi.delivery.dead_letters.record import dead_letter
from hifi.delivery.destination_follower import REFRESH_S, DestinationFollower
from hifi.delivery.destination_state import (
    EGEST,
    DestinationName,
    DestinationState,
    StateChange,
    position_record,
)
from hifi.kafka.admin import retention_ms
from hifi.kafka.assigned_partition import AssignedPartition
from hifi.kafka.clients import admin_client, topic_consumer
from hifi.kafka.dispatcher import Batch
from hifi.kafka.producer import Producer
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.kafka.topics import PARKED_RETENTION_MS, Topics
from hifi.record.fields import fields, number, with_fields
from hifi.record.headers import ATTEMPT, DESTINATION, DUE, IN, PASS, RETRY, STARTED
from hifi.record.identity import identity
from hifi.record.record import Record
from hifi.runtime import log
from hifi.runtime.clock import MICROSECONDS, monotonic_s, now_us
from hifi.runtime.errors import Fenced, NotAnEvent, Rejected

CHUNK: Final = 200
"""Deliveries that are brought back before egest must have committed past them."""
_CHECK_S: Final = 0.5
_PACE_S: Final = 0.2
_EXPIRY_CHECK_S: Final = 60.0
_KEPT_SHARE: Final = 0.9
"""Share of the topic's retention after which a parked delivery becomes a dead letter: 27 of 30 days."""
_CLOSE_S: Final = 5.0
_SETTLE_US: Final = round(2 * REFRESH_S * MICROSECONDS)
"""Time after a change until every instance of egest knows it; what comes back earlier would be parked once more."""

logger = log.get(__name__)


class _ParkedPartition:
    """A partition of `parked` during one assignment."""

    def __init__(self, assigned: AssignedPartition, first_offsets: dict[DestinationName, int]) -> None:
        self.assigned = assigned
        self.first_offsets = first_offsets
        """Destination to the first offset that may hold a delivery of it."""
        self.through = assigned.committed or 0
        """Offset before which every record was decided upon."""
        self.newest_s: dict[DestinationName, float] = {}
        """When a delivery of a destination was last read, monotonic seconds."""
        self.probed_s: dict[DestinationName, float] = {}
        self.tasks: dict[DestinationName, asyncio.Task[None]] = {}


class ParkedDeliveries:
    """Handles the topic `parked`."""

    def __init__(
        self,
        bootstrap: str,
        topics: Topics,
        destinations: DestinationFollower,
        producer: Producer,
        probe_s: float,
    ) -> None:
        """Start without partitions.

        Args:
            bootstrap: `HOST:PORT,…`.
            topics: of the stream.
            destinations: started before the first batch.
            producer: started before the first batch.
            probe_s: time between two parked deliveries of a partition that are brought back to see whether the
                destination works again, seconds. Without them nothing would tell if no new events came.
        """
        self._bootstrap = bootstrap
        self._topics = topics
        self._destinations = destinations
        self._producer = producer
        self._probe_s = probe_s
        self._partitions: dict[int, _ParkedPartition] = {}
        self._reading = asyncio.Lock()
        self._connecting = asyncio.Lock()
        self._admin: Any = None
        self._next_expiry_s = 0.0

    async def handle(self, assigned: AssignedPartition, batch: Batch) -> None:
        """Note where the deliveries of parked destinations begin; bring the others back at once."""
        await self._destinations.refresh()
        parked = await self._partition(assigned)
        if not assigned.active:
            assigned.abandon()
            return
        fetched_us = now_us()
        positions: list[Record] = []
        back: list[Record] = []
        refused: list[Record] = []
        for record in batch:
            try:
                name = _name(record)
            except NotAnEvent as why:
                refused.append(_letter(record, why, fetched_us))
                continue
            parked.newest_s[name] = monotonic_s()
            if name in parked.first_offsets:
                continue
            if self._destinations.states.get(name).state is DestinationState.ACTIVE:
                back.append(_resumed(record, fetched_us))
            else:
                parked.first_offsets[name] = record.offset
                positions.append(position_record(name, assigned.partition, record.offset))
        parked.through = batch[-1].offset + 1
        await self._write(assigned.partition, back=back, letters=refused, positions=positions)
        assigned.complete_through(batch[-1].offset)

    async def run(self, assigned: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Bring back what was resumed, until cancelled.

        Args:
            assigned: the partitions of all topics that are assigned now; it changes.
        """
        try:
            while True:
                await asyncio.sleep(_CHECK_S)
                try:
                    partitions = [
                        await self._partition(partition)
                        for partition in list(assigned.values())
                        if partition.topic == self._topics.parked
                    ]
                    for parked in partitions:
                        self._start_drains(parked)
                    if monotonic_s() >= self._next_expiry_s and any(
                        parked.first_offsets for parked in partitions
                    ):
                        await self._start_expiry(partitions)
                except (KafkaError, OSError) as error:
                    logger.warning("parked-unreadable", error=repr(error))
        finally:
            tasks = [task for parked in self._partitions.values() for task in parked.tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._admin is not None:
                with contextlib.suppress(KafkaError, OSError, TimeoutError):
                    await asyncio.wait_for(self._admin.close(), _CLOSE_S)

    async def _partition(self, assigned: AssignedPartition) -> _ParkedPartition:
        parked = self._partitions.get(assigned.partition)
        if parked is None or parked.assigned is not assigned:
            if parked is not None:
                await asyncio.gather(*parked.tasks.values(), return_exceptions=True)
            await self._destinations.refresh()
            first_offsets = self._destinations.states.positions(assigned.partition)
            parked = self._partitions[assigned.partition] = _ParkedPartition(assigned, first_offsets)
        return parked

    def _start_drains(self, parked: _ParkedPartition) -> None:
        if not parked.assigned.active:
            return
        for name in list(parked.first_offsets):
            if name in parked.tasks:
                continue
            change = self._destinations.states.get(name)
            if now_us() - change.at_us < _SETTLE_US:
                continue
            if change.state is DestinationState.PARKED and not self._probe_due(parked, name, change):
                continue
            task = parked.tasks[name] = asyncio.create_task(self._drain(parked, name, change))
            task.add_done_callback(partial(_forget, parked.tasks, name))

    async def _start_expiry(self, partitions: Sequence[_ParkedPartition]) -> None:
        """Begin to make dead letters of deliveries that Kafka would delete soon, whatever their destination's state."""
        kept_ms = await retention_ms(await self._started_admin(), self._topics.parked)
        if kept_ms is None:
            kept_ms = PARKED_RETENTION_MS
        if kept_ms < 0:
            self._next_expiry_s = monotonic_s() + _EXPIRY_CHECK_S
            return
        self._next_expiry_s = monotonic_s() + min(_EXPIRY_CHECK_S, kept_ms / 20_000)
        oldest_ms = now_us() // 1000 - int(kept_ms * _KEPT_SHARE)
        tps = [TopicPartition(self._topics.parked, parked.assigned.partition) for parked in partitions]
        async with self._reading, topic_consumer(self._bootstrap) as consumer:
            ranges = await offset_ranges(consumer, tps, oldest_ms)
        for parked, tp in zip(partitions, tps, strict=True):
            end = min(ranges[tp].start, parked.through)
            for name, first in list(parked.first_offsets.items()):
                if first < end and name not in parked.tasks and parked.assigned.active:
                    task = parked.tasks[name] = asyncio.create_task(self._expire(parked, name, end, kept_ms))
                    task.add_done_callback(partial(_forget, parked.tasks, name))

    async def _expire(self, parked: _ParkedPartition, name: DestinationName, end: int, kept_ms: int) -> None:
        """Make dead letters of a destination's deliveries below an offset."""
        days = f"{kept_ms / 86_400_000:g}"
        why = Rejected(
            "expired", f"it was parked for {_KEPT_SHARE:.0%} of the {days} days that Kafka keeps it"
        )
        partition, expired = parked.assigned.partition, 0
        try:
            while parked.first_offsets.get(name, end) < end:
                deliveries, next_offset = await self._read(parked, name, CHUNK, end)
                parked.assigned.ensure_active()
                fetched_us = now_us()
                await self._write(
                    partition, letters=[_letter(record, why, fetched_us) for record in deliveries]
                )
                expired += len(deliveries)
                parked.assigned.ensure_active()
                await self._advance(parked, name, next_offset)
        except (Fenced, KafkaError, OSError) as error:
            logger.warning("expiry-interrupted", partition=partition, error=repr(error), **name._asdict())
        if expired:
            logger.warning("parked-expired", partition=partition, deliveries=expired, **name._asdict())

    async def _advance(self, parked: _ParkedPartition, name: DestinationName, next_offset: int) -> None:
        """Note that every delivery of a destination below an offset was dealt with."""
        partition = parked.assigned.partition
        if (
            next_offset >= parked.through
        ):  # no await before `first_offsets` changes: `handle` must see the same
            del parked.first_offsets[name]
            await self._write(partition, positions=[position_record(name, partition, None)])
        else:
            parked.first_offsets[name] = next_offset
            await self._write(partition, positions=[position_record(name, partition, next_offset)])

    def _probe_due(self, parked: _ParkedPartition, name: DestinationName, change: StateChange) -> bool:
        if change.by != EGEST:
            return False
        now_s = monotonic_s()
        if now_s - parked.probed_s.setdefault(name, now_s) < self._probe_s:
            return False
        parked.probed_s[name] = now_s
        return True

    async def _drain(self, parked: _ParkedPartition, name: DestinationName, change: StateChange) -> None:
        """Bring back or expire the deliveries of a destination, as long as its state stays the same."""
        limit = 1 if change.state is DestinationState.PARKED else CHUNK
        partition = parked.assigned.partition
        moved = 0
        try:
            while name in parked.first_offsets and self._destinations.states.get(name).state is change.state:
                began_s = monotonic_s()
                deliveries, next_offset = await self._read(parked, name, limit)
                parked.assigned.ensure_active()
                fetched_us = now_us()
                if change.state is DestinationState.EXPIRING:
                    await self._write(
                        partition, letters=[_expired(record, fetched_us) for record in deliveries]
                    )
                else:
                    await self._write(partition, back=[_resumed(record, fetched_us) for record in deliveries])
                moved += len(deliveries)
                parked.assigned.ensure_active()
                await self._advance(parked, name, next_offset)
                if change.state is DestinationState.PARKED:
                    break
                if deliveries and change.state is DestinationState.ACTIVE:
                    await self._wait_for_egest(parked.assigned)
                    if parked.newest_s.get(name, 0.0) > began_s:
                        await asyncio.sleep(
                            REFRESH_S
                        )  # it is parked again: egest does not know the state yet
        except (Fenced, KafkaError, OSError) as error:
            logger.warning("drain-interrupted", partition=partition, error=repr(error), **name._asdict())
            await asyncio.sleep(_CHECK_S)
        if moved:
            logger.info(
                "parked-moved", state=change.state, partition=partition, deliveries=moved, **name._asdict()
            )

    async def _read(
        self, parked: _ParkedPartition, name: DestinationName, limit: int, end: int | None = None
    ) -> tuple[list[ConsumerRecord], int]:
        """The next deliveries of a destination, and the offset after the last record that was read for them.

        Args:
            parked: the partition.
            name: of the destination.
            limit: largest number of deliveries.
            end: offset before which they are read; None: all that were decided upon.
        """
        tp = TopicPartition(self._topics.parked, parked.assigned.partition)
        deliveries: list[ConsumerRecord] = []
        async with self._reading, topic_consumer(self._bootstrap) as consumer:
            existing_offsets = (await offset_ranges(consumer, [tp]))[tp]
            first = parked.first_offsets[name]
            if existing_offsets.start > first:  # observe knows which deliveries were among them
                logger.error(
                    "offsets-lost",
                    topic=tp.topic,
                    partition=tp.partition,
                    first=first,
                    last=existing_offsets.start - 1,
                )
            offsets = range(max(existing_offsets.start, first), parked.through if end is None else end)
            async for records in read_ranges(consumer, {tp: offsets}, max_records=CHUNK):
                for record in records:
                    with contextlib.suppress(NotAnEvent):
                        if _name(record) == name:
                            deliveries.append(record)
                    if len(deliveries) == limit:
                        return deliveries, record.offset + 1
        return deliveries, max(offsets.start, offsets.stop)

    async def _wait_for_egest(self, assigned: AssignedPartition) -> None:
        """Wait until egest has committed past everything that `retry-out` holds now."""
        tp = TopicPartition(self._topics.retry_out, assigned.partition)
        async with self._reading, topic_consumer(self._bootstrap) as consumer:
            end = (await consumer.end_offsets([tp]))[tp]
        admin = await self._started_admin()
        while assigned.active:
            committed = await admin.list_consumer_group_offsets(self._topics.group("egest"))
            if tp in committed and committed[tp].offset >= end:
                return
            await asyncio.sleep(_PACE_S)

    async def _started_admin(self) -> Any:
        async with self._connecting:
            if self._admin is None:
                admin = admin_client(self._bootstrap)
                await admin.start()
                self._admin = admin
            return self._admin

    async def _write(
        self,
        partition: int,
        *,
        back: Sequence[Record] = (),
        letters: Sequence[Record] = (),
        positions: Sequence[Record] = (),
    ) -> None:
        outputs = [
            (self._topics.retry_out, partition, back),
            (self._topics.dead_letter, partition, letters),
            (self._topics.destinations, 0, positions),
        ]
        await asyncio.gather(
            *(
                self._producer.send_and_wait(topic, number, records)
                for topic, number, records in outputs
                if records
            )
        )


def _forget(tasks: dict[DestinationName, asyncio.Task[None]], name: DestinationName, _: object) -> None:
    del tasks[name]


def _name(record: ConsumerRecord) -> DestinationName:
    destination = fields(record.headers).get(DESTINATION)
    if destination is None:
        raise NotAnEvent(f"the header {DESTINATION} is missing")
    return DestinationName(identity(record.headers).pipe, destination.decode("utf-8", "replace"))


def _resumed(record: ConsumerRecord, fetched_us: int) -> Record:
    """The record for `retry-out`: with one more pass; its limits `max_attempts` and `max_age` begin anew."""
    passes = number(fields(record.headers), PASS, 0) + 1
    changes = {
        PASS: b"%d" % passes,
        IN: b"%d" % fetched_us,
        ATTEMPT: None,
        STARTED: None,
        DUE: None,
        RETRY: b"parked/%d" % record.offset,
    }
    return Record(record.key, record.value, with_fields(record.headers, changes))


def _expired(record: ConsumerRecord, fetched_us: int) -> Record:
    return _letter(record, Rejected("expired", "an operator expired the parked deliveries"), fetched_us)


def _letter(record: ConsumerRecord, why: Rejected, fetched_us: int) -> Record:
    return dead_letter(record.key, record.value, record.headers, "retrier", why, fetched_us)
