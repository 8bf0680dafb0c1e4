"""Bring parked deliveries back when their destination is resumed, or make dead letters of them.

The retrier reads `parked` once as it is written and records, for each destination and partition, the first offset of
its deliveries. When the destination is active again, they are read from that offset and go to `retry-out` in small
chunks: the next chunk follows when egest has committed past the last one. So they come back at the rate of the
destination, and few are copied if it fails again. Progress is kept on the topic `destinations` after Kafka has
acknowledged a chunk: a retrier that dies repeats one chunk at most, which egest drops as copies.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping, Sequence
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
from hifi.kafka.partition_lease import PartitionLease
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
from hifi_retrier.sendable import sendable

CHUNK: Final = 200
"""Deliveries that are brought back before egest must have committed past them."""
_CHECK_S: Final = 0.5
_PACE_S: Final = 0.2
_EXPIRY_CHECK_S: Final = 60.0
_KEPT_SHARE: Final = 0.9
"""Share of the topic's retention after which a parked delivery becomes a dead letter: 27 of 30 days."""
_CLOSE_S: Final = 5.0
_LEASE_CHECK_S: Final = 0.05
"""Time between two checks of the lease while it is not held, seconds."""
_SETTLE_US: Final = round(2 * REFRESH_S * MICROSECONDS)
"""Time after a change until every instance of egest knows it; earlier deliveries would be parked once more."""

logger = log.get(__name__)


class _ParkedPartition:
    """A partition of `parked` during one assignment."""

    def __init__(self, assigned: AssignedPartition, first_offsets: dict[DestinationName, int]) -> None:
        self.assigned = assigned
        self.first_offsets = first_offsets
        """Destination to the first offset that may hold a delivery of it."""
        self.handled_end = assigned.committed or 0
        """Offset before which every record was handled."""
        self.newest_s: dict[DestinationName, float] = {}
        """Time of the last read of a delivery of a destination, monotonic seconds."""
        self.probed_s: dict[DestinationName, float] = {}
        self.tasks: dict[DestinationName, asyncio.Task[None]] = {}
        self.revocation = asyncio.create_task(self._cancel_when_revoked())
        """Ends the tasks: what they have not written yet is the next owner's."""

    def start(self, name: DestinationName, work: Coroutine[Any, Any, None]) -> None:
        """Start the only task of a destination."""
        task = self.tasks[name] = asyncio.create_task(work)
        task.add_done_callback(partial(_forget, self.tasks, name))

    async def _cancel_when_revoked(self) -> None:
        await self.assigned.revoked.wait()
        for task in self.tasks.values():
            task.cancel()


class ParkedDeliveries:
    """Handles the topic `parked`."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        topics: Topics,
        destinations: DestinationFollower,
        producer: Producer,
        lease: PartitionLease,
        probe_s: float,
    ) -> None:
        """Start without partitions.

        Args:
            bootstrap: `HOST:PORT,…`.
            client_id: name in the logs and quotas of the broker.
            topics: of the stream.
            destinations: started before the first batch.
            producer: started before the first batch.
            lease: needed to write anything.
            probe_s: time between two parked deliveries of a partition that are brought back to test whether the
                destination works again, seconds. Without them its recovery would show only with new events.
        """
        self._bootstrap, self._client_id = bootstrap, client_id
        self._topics = topics
        self._destinations = destinations
        self._producer = producer
        self._lease = lease
        self._probe_s = probe_s
        self._partitions: dict[int, _ParkedPartition] = {}
        self._partition_lock = asyncio.Lock()
        self._read_lock = asyncio.Lock()
        self._connect_lock = asyncio.Lock()
        self._admin: Any = None
        self._next_expiry_s = 0.0

    async def handle(self, assigned: AssignedPartition, batch: Batch) -> None:
        """Record the first offsets of parked destinations' deliveries; bring other deliveries back at once."""
        await self._destinations.refresh()
        parked_partition = await self._partition(assigned)
        try:
            await self._ensure_owned(assigned)
        except Fenced:
            assigned.abandon()
            return
        fetched_us = now_us()
        new_offsets: dict[DestinationName, int] = {}
        resumed_records: list[Record] = []
        dead_letters: list[Record] = []
        for record in batch:
            try:
                name = _name(record)
                if (
                    name not in parked_partition.first_offsets
                    and self._destinations.states.get(name).state is DestinationState.ACTIVE
                ):
                    resumed_records.append(_resumed(record, fetched_us))
                elif name not in parked_partition.first_offsets:
                    new_offsets.setdefault(name, record.offset)
                parked_partition.newest_s[name] = monotonic_s()
            except Rejected as rejection:
                dead_letters.append(_dead_letter(record, rejection, fetched_us))
        # No await up to here: `_advance` must see the same.
        parked_partition.handled_end = batch[-1].offset + 1
        await self._write(
            assigned.partition,
            resumed_records=resumed_records,
            dead_letters=dead_letters,
            position_records=[
                position_record(name, assigned.partition, offset) for name, offset in new_offsets.items()
            ],
        )
        # Not before the positions are written: the repetition of a batch would leave them out.
        parked_partition.first_offsets |= new_offsets
        assigned.complete_through(batch[-1].offset)

    async def run(self, assigned: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Bring back the deliveries of resumed destinations, until cancelled.

        Args:
            assigned: the partitions of all topics that are assigned now; it changes.
        """
        try:
            while True:
                await asyncio.sleep(_CHECK_S)
                try:
                    parked_partitions = [
                        await self._partition(assigned_partition)
                        for assigned_partition in list(assigned.values())
                        if assigned_partition.topic == self._topics.parked and assigned_partition.active
                    ]
                    for parked_partition in parked_partitions:
                        self._start_drains(parked_partition)
                    if monotonic_s() >= self._next_expiry_s and any(
                        parked_partition.first_offsets for parked_partition in parked_partitions
                    ):
                        await self._start_expiry(parked_partitions)
                except (KafkaError, OSError) as error:
                    logger.warning("parked-unreadable", error=repr(error))
        finally:
            tasks = [
                task
                for parked_partition in self._partitions.values()
                for task in (parked_partition.revocation, *parked_partition.tasks.values())
            ]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._admin is not None:
                with contextlib.suppress(KafkaError, OSError, TimeoutError):
                    async with asyncio.timeout(_CLOSE_S):
                        await self._admin.close()

    async def _partition(self, assigned: AssignedPartition) -> _ParkedPartition:
        """The state of a partition during this assignment: all callers get the same object."""
        async with self._partition_lock:
            parked_partition = self._partitions.get(assigned.partition)
            if parked_partition is None or parked_partition.assigned is not assigned:
                if parked_partition is not None:
                    await asyncio.gather(*parked_partition.tasks.values(), return_exceptions=True)
                await self._destinations.refresh()
                first_offsets = self._destinations.states.positions(assigned.partition)
                parked_partition = _ParkedPartition(assigned, first_offsets)
                if assigned.active:  # else a later assignment may have its state here
                    self._partitions[assigned.partition] = parked_partition
            return parked_partition

    async def _ensure_owned(self, assigned: AssignedPartition) -> None:
        """Wait until the partition certainly belongs to this instance; call before anything that others can see.

        Raises:
            Fenced: it is no longer assigned to this instance.
        """
        while assigned.active and not self._lease.held():
            await asyncio.sleep(_LEASE_CHECK_S)
        assigned.ensure_active()

    def _start_drains(self, parked_partition: _ParkedPartition) -> None:
        if not parked_partition.assigned.active:
            return
        for name in list(parked_partition.first_offsets):
            if name in parked_partition.tasks:
                continue
            change = self._destinations.states.get(name)
            if now_us() - change.at_us < _SETTLE_US:
                continue
            if change.state is DestinationState.PARKED and not self._probe_due(
                parked_partition, name, change
            ):
                continue
            parked_partition.start(name, self._drain(parked_partition, name, change))

    async def _start_expiry(self, parked_partitions: Sequence[_ParkedPartition]) -> None:
        """Start to make dead letters of deliveries that Kafka would delete soon, in any state of their destination."""
        topic_retention_ms = await retention_ms(await self._started_admin(), self._topics.parked)
        if topic_retention_ms is None:
            topic_retention_ms = PARKED_RETENTION_MS
        if topic_retention_ms < 0:
            self._next_expiry_s = monotonic_s() + _EXPIRY_CHECK_S
            return
        self._next_expiry_s = monotonic_s() + min(_EXPIRY_CHECK_S, topic_retention_ms / 20_000)
        oldest_ms = now_us() // 1000 - int(topic_retention_ms * _KEPT_SHARE)
        topic_partitions = [
            TopicPartition(self._topics.parked, parked_partition.assigned.partition)
            for parked_partition in parked_partitions
        ]
        async with self._read_lock, topic_consumer(self._bootstrap, self._client_id) as consumer:
            ranges = await offset_ranges(consumer, topic_partitions, oldest_ms)
        for parked_partition, topic_partition in zip(parked_partitions, topic_partitions, strict=True):
            end_offset = min(ranges[topic_partition].start, parked_partition.handled_end)
            for name, first_offset in list(parked_partition.first_offsets.items()):
                if (
                    first_offset < end_offset
                    and name not in parked_partition.tasks
                    and parked_partition.assigned.active
                ):
                    parked_partition.start(
                        name, self._expire(parked_partition, name, end_offset, topic_retention_ms)
                    )

    async def _expire(
        self,
        parked_partition: _ParkedPartition,
        name: DestinationName,
        end_offset: int,
        topic_retention_ms: int,
    ) -> None:
        """Make dead letters of a destination's deliveries below an offset."""
        retention_days = f"{topic_retention_ms / 86_400_000:g}"
        rejection = Rejected(
            "expired", f"it was parked for {_KEPT_SHARE:.0%} of the {retention_days} days that Kafka keeps it"
        )
        partition, expired_count = parked_partition.assigned.partition, 0
        try:
            while parked_partition.first_offsets.get(name, end_offset) < end_offset:
                deliveries, next_offset = await self._read(parked_partition, name, CHUNK, end_offset)
                await self._ensure_owned(parked_partition.assigned)
                fetched_us = now_us()
                await self._write(
                    partition,
                    dead_letters=[_dead_letter(record, rejection, fetched_us) for record in deliveries],
                )
                expired_count += len(deliveries)
                await self._ensure_owned(parked_partition.assigned)
                await self._advance(parked_partition, name, next_offset)
        except (Fenced, KafkaError, OSError) as error:
            logger.warning("expiry-interrupted", partition=partition, error=repr(error), **name._asdict())
        except Exception:
            logger.exception("expiry-failed", partition=partition, **name._asdict())
        if expired_count:
            logger.warning("parked-expired", partition=partition, deliveries=expired_count, **name._asdict())

    async def _advance(
        self, parked_partition: _ParkedPartition, name: DestinationName, next_offset: int
    ) -> None:
        """Record that every delivery of a destination below an offset was handled."""
        partition = parked_partition.assigned.partition
        if (
            next_offset >= parked_partition.handled_end
        ):  # no await before `first_offsets` changes: `handle` must see the same
            del parked_partition.first_offsets[name]
            await self._write(partition, position_records=[position_record(name, partition, None)])
        else:
            parked_partition.first_offsets[name] = next_offset
            await self._write(partition, position_records=[position_record(name, partition, next_offset)])

    def _probe_due(
        self, parked_partition: _ParkedPartition, name: DestinationName, change: StateChange
    ) -> bool:
        if change.by != EGEST:
            return False
        now_s = monotonic_s()
        if now_s - parked_partition.probed_s.setdefault(name, now_s) < self._probe_s:
            return False
        parked_partition.probed_s[name] = now_s
        return True

    async def _drain(
        self, parked_partition: _ParkedPartition, name: DestinationName, change: StateChange
    ) -> None:
        """Bring back or expire the deliveries of a destination, as long as its state does not change."""
        limit = 1 if change.state is DestinationState.PARKED else CHUNK
        partition = parked_partition.assigned.partition
        moved_count = 0
        try:
            while (
                name in parked_partition.first_offsets
                and self._destinations.states.get(name).state is change.state
            ):
                start_s, first_offset = monotonic_s(), parked_partition.first_offsets[name]
                deliveries, next_offset = await self._read(parked_partition, name, limit)
                if next_offset == first_offset:  # `handle` has read no record from there on yet
                    await asyncio.sleep(_CHECK_S)
                    break
                await self._ensure_owned(parked_partition.assigned)
                fetched_us = now_us()
                if change.state is DestinationState.EXPIRING:
                    await self._write(
                        partition, dead_letters=[_expired(record, fetched_us) for record in deliveries]
                    )
                else:
                    resumed_records, dead_letters = _brought_back(deliveries, fetched_us)
                    await self._write(partition, resumed_records=resumed_records, dead_letters=dead_letters)
                moved_count += len(deliveries)
                await self._ensure_owned(parked_partition.assigned)
                await self._advance(parked_partition, name, next_offset)
                if change.state is DestinationState.PARKED:
                    break
                if deliveries and change.state is DestinationState.ACTIVE:
                    await self._wait_for_egest(parked_partition.assigned)
                    if parked_partition.newest_s.get(name, 0.0) > start_s:
                        await asyncio.sleep(
                            REFRESH_S
                        )  # it is parked again: egest does not know the state yet
        except (Fenced, KafkaError, OSError) as error:
            logger.warning("drain-interrupted", partition=partition, error=repr(error), **name._asdict())
            await asyncio.sleep(_CHECK_S)
        except Exception:
            logger.exception("drain-failed", partition=partition, **name._asdict())
            await asyncio.sleep(_CHECK_S)
        if moved_count:
            logger.info(
                "parked-moved",
                state=change.state,
                partition=partition,
                deliveries=moved_count,
                **name._asdict(),
            )

    async def _read(
        self,
        parked_partition: _ParkedPartition,
        name: DestinationName,
        limit: int,
        end_offset: int | None = None,
    ) -> tuple[list[ConsumerRecord], int]:
        """The next deliveries of a destination, and the offset after the last record that was read.

        Args:
            parked_partition: the partition.
            name: of the destination.
            limit: largest number of deliveries.
            end_offset: offset before which they are read; None: the end of the records that were handled.
        """
        topic_partition = TopicPartition(self._topics.parked, parked_partition.assigned.partition)
        deliveries: list[ConsumerRecord] = []
        async with self._read_lock, topic_consumer(self._bootstrap, self._client_id) as consumer:
            existing_offsets = (await offset_ranges(consumer, [topic_partition]))[topic_partition]
            first_offset = parked_partition.first_offsets[name]
            if first_offset > existing_offsets.stop >= parked_partition.handled_end:
                first_offset = existing_offsets.start  # the topic was made again since
            if existing_offsets.start > first_offset:  # observe accounts for the deliveries among them
                logger.error(
                    "offsets-lost",
                    topic=topic_partition.topic,
                    partition=topic_partition.partition,
                    first=first_offset,
                    last=existing_offsets.start - 1,
                )
            offsets = range(
                max(existing_offsets.start, first_offset),
                parked_partition.handled_end if end_offset is None else end_offset,
            )
            async for records in read_ranges(consumer, {topic_partition: offsets}, max_records=CHUNK):
                for record in records:
                    with contextlib.suppress(NotAnEvent):
                        if _name(record) == name:
                            deliveries.append(record)
                    if len(deliveries) == limit:
                        return deliveries, record.offset + 1
        return deliveries, max(offsets.start, offsets.stop)

    async def _wait_for_egest(self, assigned: AssignedPartition) -> None:
        """Wait until egest has committed past the present end of `retry-out`."""
        topic_partition = TopicPartition(self._topics.retry_out, assigned.partition)
        async with self._read_lock, topic_consumer(self._bootstrap, self._client_id) as consumer:
            end_offset = (await consumer.end_offsets([topic_partition]))[topic_partition]
        admin = await self._started_admin()
        while assigned.active:
            committed_offsets = await admin.list_consumer_group_offsets(self._topics.group("egest"))
            if (
                topic_partition in committed_offsets
                and committed_offsets[topic_partition].offset >= end_offset
            ):
                return
            await asyncio.sleep(_PACE_S)

    async def _started_admin(self) -> Any:
        async with self._connect_lock:
            if self._admin is None:
                admin = admin_client(self._bootstrap, self._client_id)
                await admin.start()
                self._admin = admin
            return self._admin

    async def _write(
        self,
        partition: int,
        *,
        resumed_records: Sequence[Record] = (),
        dead_letters: Sequence[Record] = (),
        position_records: Sequence[Record] = (),
    ) -> None:
        outputs = [
            (self._topics.retry_out, partition, resumed_records),
            (self._topics.dead_letter, partition, dead_letters),
            (self._topics.destinations, 0, position_records),
        ]
        await asyncio.gather(
            *(
                self._producer.send_and_wait(topic, output_partition, records)
                for topic, output_partition, records in outputs
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


def _brought_back(records: Sequence[ConsumerRecord], fetched_us: int) -> tuple[list[Record], list[Record]]:
    """The records for `retry-out`, and the dead letters of those that have none."""
    resumed_records: list[Record] = []
    dead_letters: list[Record] = []
    for record in records:
        try:
            resumed_records.append(_resumed(record, fetched_us))
        except Rejected as rejection:
            dead_letters.append(_dead_letter(record, rejection, fetched_us))
    return resumed_records, dead_letters


def _resumed(record: ConsumerRecord, fetched_us: int) -> Record:
    """The record for `retry-out`: with one more pass; its limits `max_attempts` and `max_age` begin anew.

    Raises:
        Rejected: the record is not a delivery of egest, or no topic can hold it with these fields.
    """
    pass_number = number(fields(record.headers), PASS, 0) + 1
    field_changes = {
        PASS: b"%d" % pass_number,
        IN: b"%d" % fetched_us,
        ATTEMPT: None,
        STARTED: None,
        DUE: None,
        RETRY: b"parked/%d" % record.offset,
    }
    return sendable(Record(record.key, record.value, with_fields(record.headers, field_changes)))


def _expired(record: ConsumerRecord, fetched_us: int) -> Record:
    return _dead_letter(record, Rejected("expired", "an operator expired the parked deliveries"), fetched_us)


def _dead_letter(record: ConsumerRecord, rejection: Rejected, fetched_us: int) -> Record:
    return dead_letter(record.key, record.value, record.headers, "retrier", rejection, fetched_us)
