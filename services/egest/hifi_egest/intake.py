"""Turn the records of a fetch into deliveries, each in the lane of its destination.

A batch takes three steps: parse all records (pure), drop copies, offer the events to the lanes of their destinations.
The outcomes of the deliveries complete the offsets later.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from aiokafka import ConsumerRecord

from hifi.kafka.consumer import AssignedPartition, Batch, ConsumerOptions
from hifi.kafka.stream_log import StreamLog
from hifi.kafka.topics import Topics
from hifi.pipe.registry import PipeRegistry
from hifi.record.fields import fields
from hifi.record.headers import DESTINATION, TO
from hifi.record.identity import identity
from hifi.runtime import log, metrics
from hifi.runtime.clock import MICROSECONDS, monotonic_s, now_us
from hifi.runtime.errors import Rejected
from hifi.runtime.health import Health
from hifi_egest.dedup.copy_key import RAW_LOG
from hifi_egest.dedup.deduplicator import CopyCheck, Deduplicator
from hifi_egest.dedup.outcome_reader import OutcomeReader, RecordedOutcomes
from hifi_egest.dedup.takeover import take_over
from hifi_egest.delivery.delivery import ENRICHED, RETRY_OUT, Delivery, EventRecord, SourcePartition
from hifi_egest.delivery.memory_bounds import InFlightBudget
from hifi_egest.delivery.parsing import Heartbeat, InvalidRecord, parse
from hifi_egest.lanes.lane import Lane
from hifi_egest.lanes.lanes import Lanes
from hifi_egest.outcomes.recorder import OutcomeRecorder
from hifi_egest.outcomes.records import SERVICE
from hifi_egest.policy.outcome import (
    HELD,
    LANE_FULL,
    PIPES_BEHIND,
    UNKNOWN_PIPE,
    Deferral,
    Filtered,
    Outcome,
    deleted,
    retry_later,
)
from hifi_egest.settings import EgestSettings

_BATCH_RECORDS: Final = 100
"""Records that one turn of the event loop gives to the lanes, about 1 ms of work."""
_RECHECK_S: Final = 0.1

logger = log.get(__name__)


@dataclass(slots=True, eq=False)
class _OwnedPartition:
    """A partition with the state of the intake.

    Attributes:
        source: the partition.
        deduplicator: of its records.
        earlier_outcomes: that the last owner wrote.
        parsed_through: offset up to which all records were parsed and checked for copies.
        undelivered: events up to there whose deliveries are not all offered to lanes. When a batch fails, its
            repetition continues with these.
    """

    source: SourcePartition
    deduplicator: Deduplicator
    earlier_outcomes: RecordedOutcomes
    parsed_through: int = -1
    undelivered: deque[EventRecord] = field(default_factory=deque)

    def take(self, offset: int) -> EventRecord | None:
        """Remove and return an undelivered event; None: that record has none."""
        for event in self.undelivered:
            if event.record.offset == offset:
                self.undelivered.remove(event)
                return event
        return None


def consumer_options(settings: EgestSettings) -> ConsumerOptions:
    """Topics, group and sizes of the consumer of deliveries."""
    topics = settings.topics
    return ConsumerOptions(
        [topics.enriched, topics.retry_out],
        topics.group(SERVICE),
        batch_records=_BATCH_RECORDS,
        pending_records=settings.egest_pending_records,
        partition_fetch_bytes=settings.egest_fetch_bytes,
    )


class DeliveryIntake:
    """The batch handler and the poison handler of egest's consumer."""

    def __init__(
        self,
        topics: Topics,
        registry: PipeRegistry,
        lanes: Lanes,
        recorder: OutcomeRecorder,
        reader: OutcomeReader,
        budget: InFlightBudget,
        health: Health,
        pipes_wait_s: float,
        stream_log: StreamLog,
    ) -> None:
        """Start without partitions.

        Args:
            topics: of the stream.
            registry: of the pipes.
            lanes: started.
            recorder: of outcomes, for records and deliveries without a lane.
            reader: of earlier outcomes, started.
            budget: bound on deliveries in flight.
            health: shows a revision of a pipe that does not arrive.
            pipes_wait_s: maximum time to wait for a revision of a pipe, seconds.
            stream_log: learns, before the first event is offered, that offsets in `raw` begin anew.
        """
        self._topics = topics
        self._registry = registry
        self._lanes = lanes
        self._recorder = recorder
        self._reader = reader
        self._budget = budget
        self._health = health
        self._pipes_wait_s = pipes_wait_s
        self._stream_log = stream_log
        self._unreachable_offset = -1
        self._partitions: dict[AssignedPartition, _OwnedPartition] = {}
        self._release_tasks: set[asyncio.Task[None]] = set()

    def handle(self, assigned: AssignedPartition, records: Batch) -> Awaitable[None] | None:
        """Offer the events of records to the lanes of their destinations. Implements `BatchHandler`."""
        partition = self._partitions.get(assigned)
        if partition is None:
            return self._take_over(assigned, records)
        assigned.ensure_active()
        first_offset, last_offset = records[0].offset, records[-1].offset
        if first_offset <= partition.parsed_through:
            records = [record for record in records if record.offset > partition.parsed_through]
        if records:
            self._drop_copies(partition, records)
        undelivered = partition.undelivered
        while undelivered and undelivered[0].record.offset <= last_offset:
            event = undelivered[0]
            if self._budget.exceeded or event.revision_offset > self._registry.offset:
                return self._wait_and_offer(partition, last_offset)
            if self._offer(partition, event, None) is not None:
                return self._wait_and_offer(partition, last_offset)
            undelivered.popleft()
        return None

    async def poisoned(self, assigned: AssignedPartition, record: ConsumerRecord, error: Exception) -> None:
        """Write a dead letter for each delivery of a record on which egest failed repeatedly.

        Deliveries that are in their lanes already continue: the offset is complete when they have their outcome, too.
        Implements `PoisonHandler`.
        """
        rejection = Rejected("poisoned", f"egest fails on it ({type(error).__name__}); see its log")
        partition = self._partitions.get(assigned)
        event = partition.take(record.offset) if partition is not None else None
        if event is not None:
            destinations, event.destinations = event.destinations, []
        else:
            field_name = TO if assigned.topic == self._topics.enriched else DESTINATION
            destinations = fields(record.headers).get(field_name, b"").split(b",")
        acknowledgements = [asyncio.Event() for _ in destinations]
        for destination, acknowledged in zip(destinations, acknowledgements, strict=True):
            self._recorder.reject(assigned, record, rejection, now_us(), acknowledged.set, destination)
        for acknowledged in acknowledgements:
            await acknowledged.wait()
            if event is not None:
                event.delivery_completed()
        if event is None:
            assigned.complete(record.offset)

    # Assignment

    async def _take_over(self, assigned: AssignedPartition, records: Batch) -> None:
        """Continue where the last owner of a partition stopped, with the first records of an assignment."""
        source = ENRICHED if assigned.topic == self._topics.enriched else RETRY_OUT
        for partition in list(self._partitions.values()):
            if partition.source.assigned.tp == assigned.tp:
                # It was lost and is assigned again: its requests must end first, so that their receipts are found.
                await partition.source.wait_idle()
        log_identity = await self._stream_log.identity_at(assigned)
        deduplicator, outcomes = await take_over(self._reader, source, assigned, records[0], log_identity)
        source_partition = SourcePartition(assigned, source, self._budget)
        self._partitions[assigned] = _OwnedPartition(source_partition, deduplicator, outcomes)
        task = asyncio.create_task(self._release_when_revoked(source_partition))
        self._release_tasks.add(task)
        task.add_done_callback(self._release_tasks.discard)
        remaining_work = self.handle(assigned, records)
        if remaining_work is not None:
            await remaining_work

    async def _release_when_revoked(self, partition: SourcePartition) -> None:
        """After a partition's revocation drop unsent deliveries, wait for requests in flight, and leave the others."""
        await partition.assigned.revoked.wait()
        self._lanes.revoke(partition)
        await partition.wait_idle()
        del self._partitions[partition.assigned]
        partition.assigned.abandon()

    # Copies

    def _drop_copies(self, partition: _OwnedPartition, records: Sequence[ConsumerRecord]) -> None:
        """Keep the events of records that are first copies.

        Copies and heartbeats are complete, invalid records get dead letters.
        """
        assigned, deduplicator = partition.source.assigned, partition.deduplicator
        deduplicator.begin_batch(records[0].offset, self._reader.floors(assigned.partition))
        fetched_us = now_us()
        for event in parse(partition.source, records, fetched_us):
            offset = event.record.offset
            if isinstance(event, Heartbeat):
                assigned.complete(offset)
            elif isinstance(event, InvalidRecord):
                self._recorder.reject(
                    assigned, event.record, event.error, fetched_us, partial(assigned.complete, offset)
                )
            else:
                copy = deduplicator.check(offset, event.key, event.log, event.log_offset, event.accepted_us)
                if copy is CopyCheck.COPY:
                    metrics.COPIES.labels(assigned.topic).inc()
                    assigned.complete(offset)
                else:
                    partition.undelivered.append(event)
                if copy is CopyCheck.RESET:
                    if event.log == RAW_LOG:
                        self._stream_log.read_anew()
                    logger.error(
                        "raw-offsets-reset", topic=assigned.topic, partition=assigned.partition, offset=offset
                    )
            partition.parsed_through = offset

    # Lanes

    def _offer(
        self, partition: _OwnedPartition, event: EventRecord, deferral: Deferral | None
    ) -> Lane | None:
        """Offer the deliveries of an event to the lanes of its destinations, in order.

        Args:
            partition: of the event.
            event: with the deliveries that are still to be offered.
            deferral: reason to hand them to the retrier; None: there is none but a held pipe or a due time.

        Returns:
            The lane that is full, so that its delivery and those after it were not taken; None: all were.
        """
        if event.due_us or self._registry.holds_pipes:
            deferral = deferral or self._deferral(event)
        offset, outcome_index = event.record.offset, partition.earlier_outcomes.index
        while event.destinations:
            name = event.destinations[0]
            if offset <= outcome_index.last and outcome_index.has(offset, name):
                self._complete_earlier(partition.earlier_outcomes, event, name)
            elif not name:
                self._record(event, name, Filtered())
            elif (lane := self._lanes.get(event.pipe, name)) is None:
                self._record_without_lane(event, name, deferral)
            elif deferral is not None:
                lane.defer(event, name, deferral)
            elif not lane.offer(event, name):
                return lane
            del event.destinations[0]
        return None

    def _record_without_lane(self, event: EventRecord, name: bytes, deferral: Deferral | None) -> None:
        """Record the outcome of a delivery without a lane, unless another service reads it and delivers it."""
        if event.partition.source == ENRICHED and self._lanes.read_elsewhere(event.pipe, name):
            event.delivery_completed()
        elif deferral in UNKNOWN_PIPE:
            passes = event.earlier.passes
            self._record(
                event, name, retry_later(deferral.reason, deferral.detail, passes, self._topics.tiers)
            )
        else:
            read_elsewhere = self._lanes.read_elsewhere(event.pipe, name)
            self._record(
                event, name, deleted(event.pipe, name.decode("utf-8", "replace"), elsewhere=read_elsewhere)
            )

    def _complete_earlier(self, earlier_outcomes: RecordedOutcomes, event: EventRecord, name: bytes) -> None:
        """Complete a delivery whose outcome the last owner wrote; write its receipt if that one is missing."""
        outcome = earlier_outcomes.without_receipt.pop((event.record.offset, name), None)
        if outcome is None:
            event.delivery_completed()
        else:
            self._record(event, name, outcome)

    def _record(self, event: EventRecord, name: bytes, outcome: Outcome) -> None:
        """Record the outcome of a delivery that no lane has."""
        delivery = Delivery(event, name, event.earlier)
        try:
            self._recorder.record([delivery], outcome)
        except BaseException:
            delivery.leave()  # nothing is written: the repetition of the batch makes a new one
            raise

    async def _wait_and_offer(self, partition: _OwnedPartition, last_offset: int) -> None:
        """Offer events up to an offset to the lanes, with waits where a limit is reached."""
        undelivered = partition.undelivered
        while undelivered and undelivered[0].record.offset <= last_offset:
            event = undelivered[0]
            deferral = await self._wait_until_admitted(event)
            while (full_lane := self._offer(partition, event, deferral)) is not None:
                if self._lanes.may_wait(full_lane):
                    await full_lane.wait_for_room(_RECHECK_S)
                    partition.source.assigned.ensure_active()
                else:
                    full_lane.defer(event, event.destinations[0], LANE_FULL)
                    del event.destinations[0]
            undelivered.popleft()

    async def _wait_until_admitted(self, event: EventRecord) -> Deferral | None:
        """Wait for room in the in-flight budget and for the event's revision of its pipe.

        Returns:
            The reason why its deliveries go to the retrier; None: the revision has arrived.
        """
        assigned = event.partition.assigned
        while self._budget.exceeded:
            await self._budget.wait_for_release(_RECHECK_S)
            assigned.ensure_active()
        if event.revision_offset <= self._registry.offset or await self._wait_for_revision(event):
            return None
        return PIPES_BEHIND

    def _deferral(self, event: EventRecord) -> Deferral | None:
        """The reason to defer an event whose revision was read: a held pipe or a due time; None: there is neither."""
        registry = self._registry
        if registry.holds_pipes and registry.unreadable(event.pipe, identity(event.record.headers).revision):
            return HELD
        return _not_due(event) if event.due_us else None

    async def _wait_for_revision(self, event: EventRecord) -> bool:
        """Wait for a revision of a pipe; once only for one that does not arrive. Returns whether it arrived."""
        offset, assigned = event.revision_offset, event.partition.assigned
        if offset <= self._unreachable_offset:
            return False
        deadline_s = monotonic_s() + self._pipes_wait_s
        while not await self._registry.wait_for_offset(offset, min(_RECHECK_S, self._pipes_wait_s)):
            assigned.ensure_active()
            if monotonic_s() >= deadline_s:
                self._unreachable_offset = offset
                read_offset = self._registry.offset
                self._health.warn(
                    "pipes",
                    f"offset {offset} of the topic pipes has not arrived; {read_offset} is the last one read",
                )
                logger.error("pipes-behind", offset=offset, read_to=read_offset, waited_s=self._pipes_wait_s)
                return False
        assigned.ensure_active()
        return True


def _not_due(event: EventRecord) -> Deferral | None:
    wait_s = (event.due_us - now_us()) / MICROSECONDS
    return Deferral("not-due", "the destination asked for more time", wait_s) if wait_s > 0 else None
