"""Turn the records of a fetch into deliveries, each in the lane of its destination.

A batch takes three steps: parse all records (pure), decide which of them are first copies, give their deliveries to the
lanes. The outcomes of the deliveries complete the offsets later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from aiokafka import ConsumerRecord

from hifi.delivery.dead_letters.record import dead_letter
from hifi.kafka.consumer import AssignedPartition, Batch
from hifi.kafka.topics import Topics
from hifi.pipe.registry import PipeRegistry
from hifi.record.event import DESTINATION, TO, fields, with_fields
from hifi.runtime import log, metrics
from hifi.runtime.clock import MICROSECONDS, monotonic_s, now_us
from hifi.runtime.errors import Rejected
from hifi.runtime.health import Health
from hifi_egest.dedup.deduplicator import CopyCheck, Deduplicator
from hifi_egest.dedup.outcome_reader import OutcomeReader, RecordedOutcomes
from hifi_egest.dedup.takeover import take_over
from hifi_egest.delivery.delivery import NO_ATTEMPT, Delivery
from hifi_egest.delivery.event_record import EventRecord
from hifi_egest.delivery.in_flight_budget import InFlightBudget
from hifi_egest.delivery.parsing import InvalidRecord, ParsedRecord, parse
from hifi_egest.delivery.partition import ENRICHED, RETRY_OUT, SourcePartition
from hifi_egest.lanes.fixed_outcomes import deleted
from hifi_egest.lanes.lane import Lane
from hifi_egest.lanes.lanes import Lanes
from hifi_egest.policy.outcome import Refusal, retry_later
from hifi_egest.receipts.outbox import Outbox
from hifi_egest.receipts.outcome_recorder import OutcomeRecorder
from hifi_egest.receipts.records import SERVICE

_RECHECK_S: Final = 0.1
LANE_FULL: Final = Refusal("lane-full", "the lane of the destination is full")
PIPES_BEHIND: Final = Refusal("pipes-behind", "this instance does not know the pipe's revision yet")

logger = log.get(__name__)


@dataclass(slots=True, eq=False)
class _Takeover:
    """A partition with what the intake knows of it.

    Attributes:
        partition: that was taken over.
        deduplicator: of its records.
        recorded: outcomes that the last owner wrote.
        given_through: offset up to which all deliveries are in their lanes, or further.
        decided: offsets of records that were parsed and checked, to events whose deliveries are not all given to lanes,
            or None if nothing is left to give. When a batch fails, its repetition continues with these.
    """

    partition: SourcePartition
    deduplicator: Deduplicator
    recorded: RecordedOutcomes
    given_through: int = -1
    decided: dict[int, EventRecord | None] = field(default_factory=dict)


class DeliveryIntake:
    """The batch handler and the poison handler of egest's consumer."""

    def __init__(
        self,
        topics: Topics,
        registry: PipeRegistry,
        lanes: Lanes,
        recorder: OutcomeRecorder,
        outbox: Outbox,
        reader: OutcomeReader,
        budget: InFlightBudget,
        health: Health,
        pipes_wait_s: float,
    ) -> None:
        """Start without partitions.

        Args:
            topics: of the stream.
            registry: of the pipes.
            lanes: started.
            recorder: for deliveries without a lane.
            outbox: for dead letters of records that are not deliveries.
            reader: of earlier outcomes, started.
            budget: bound on deliveries in flight.
            health: shows a revision of a pipe that does not arrive.
            pipes_wait_s: maximum time to wait for a revision of a pipe, seconds.
        """
        self._topics = topics
        self._registry = registry
        self._lanes = lanes
        self._recorder = recorder
        self._outbox = outbox
        self._reader = reader
        self._budget = budget
        self._health = health
        self._pipes_wait_s = pipes_wait_s
        self._unreachable_offset = -1
        self._taken_over: dict[AssignedPartition, _Takeover] = {}
        self._endings: set[asyncio.Task[None]] = set()
        self._offered: dict[Lane, None] = {}
        """Lanes with deliveries whose requests have to be started."""

    def handle(self, assigned: AssignedPartition, records: Batch) -> Awaitable[None] | None:
        """Give the deliveries of records to their lanes. Implements `BatchHandler`."""
        known = self._taken_over.get(assigned)
        return self._handle(known, records) if known is not None else self._take_over(assigned, records)

    def _handle(self, known: _Takeover, records: Batch) -> Awaitable[None] | None:
        assigned = known.partition.assigned
        assigned.ensure_active()
        if records[0].offset <= known.given_through:
            records = [record for record in records if record.offset > known.given_through]
        decided = known.decided
        new = [record for record in records if record.offset not in decided] if decided else records
        if new:
            fetched_us = now_us()
            known.deduplicator.begin_batch(new[0].offset, self._reader.floors(assigned.partition))
            self._decide(known, parse(known.partition, new, fetched_us), fetched_us)
        given = self._give(known, records)
        return self._give_rest(known, records[given:]) if given < len(records) else None

    async def poisoned(self, assigned: AssignedPartition, record: ConsumerRecord, error: Exception) -> None:
        """Write a dead letter for each delivery of a record on which egest failed repeatedly.

        Deliveries that are in their lanes already continue: the offset is complete when they have their outcome, too.
        Implements `PoisonHandler`.
        """
        why = Rejected("poisoned", f"egest fails on it ({type(error).__name__}); see its log")
        known = self._taken_over.get(assigned)
        event = known.decided.pop(record.offset, None) if known is not None else None
        if event is not None:
            names, event.destinations = event.destinations, []
        else:
            field_name = TO if assigned.topic == self._topics.enriched else DESTINATION
            names = fields(record.headers).get(field_name, b"").split(b",")
        written = [asyncio.Event() for _ in names]
        for name, acknowledged in zip(names, written, strict=True):
            self._write_dead_letter(assigned, record, why, now_us(), acknowledged.set, name)
        for acknowledged in written:
            await acknowledged.wait()
            if event is not None:
                event.delivery_completed()
        if event is None:
            assigned.complete(record.offset)

    # Assignment

    async def _take_over(self, assigned: AssignedPartition, records: Batch) -> None:
        """Continue where the last owner of a partition stopped, with the first records of an assignment."""
        source = ENRICHED if assigned.topic == self._topics.enriched else RETRY_OUT
        for earlier in [
            each for each in self._taken_over.values() if each.partition.assigned.tp == assigned.tp
        ]:
            # It was lost and is assigned again: its requests must end first, so that their receipts are found.
            await earlier.partition.wait_idle()
        deduplicator, recorded = await take_over(self._reader, source, assigned, records[0])
        partition = SourcePartition(assigned, source, self._budget)
        known = self._taken_over[assigned] = _Takeover(partition, deduplicator, recorded)
        task = asyncio.create_task(self._end(partition))
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        waiting = self._handle(known, records)
        if waiting is not None:
            await waiting

    async def _end(self, partition: SourcePartition) -> None:
        """When the partition is revoked: drop what was not sent, wait for requests in flight, leave the rest."""
        await partition.assigned.revoked.wait()
        self._lanes.revoke(partition)
        await partition.wait_idle()
        del self._taken_over[partition.assigned]
        partition.assigned.abandon()

    # Decide which records are first copies

    def _decide(self, known: _Takeover, parsed: Iterable[ParsedRecord], fetched_us: int) -> None:
        """Check parsed records for copies. Copies are complete, invalid records become dead letters."""
        assigned = known.partition.assigned
        for one in parsed:
            if isinstance(one, InvalidRecord):
                offset = one.record.offset
                known.decided[offset] = None
                self._complete_invalid(assigned, one, fetched_us)
                continue
            offset = one.record.offset
            copy = known.deduplicator.check(offset, one.key, one.line, one.rank, one.accepted_us)
            if copy is CopyCheck.COPY:
                known.decided[offset] = None
                metrics.COPIES.labels(assigned.topic).inc()
                assigned.complete(offset)
                continue
            if copy is CopyCheck.RESET:
                logger.error(
                    "raw-offsets-reset", topic=assigned.topic, partition=assigned.partition, offset=offset
                )
            known.decided[offset] = one

    def _complete_invalid(self, assigned: AssignedPartition, invalid: InvalidRecord, fetched_us: int) -> None:
        record, error = invalid
        self._write_dead_letter(assigned, record, error, fetched_us, lambda: assigned.complete(record.offset))

    def _write_dead_letter(
        self,
        assigned: AssignedPartition,
        record: ConsumerRecord,
        why: Rejected,
        fetched_us: int,
        acknowledged: Callable[[], None],
        destination: bytes = b"",
    ) -> None:
        headers = with_fields(record.headers, {DESTINATION: destination} if destination else {})
        letter = dead_letter(record.key, record.value, headers, SERVICE, why, fetched_us)
        logger.warning(
            "record-rejected",
            topic=assigned.topic,
            partition=assigned.partition,
            offset=record.offset,
            reason=why.reason,
        )
        self._outbox.put(self._topics.dead_letter, assigned.partition, [letter], acknowledged)

    # Give deliveries to lanes

    def _give(self, known: _Takeover, records: Sequence[ConsumerRecord]) -> int:
        """Give the deliveries of decided records to their lanes, in order.

        Returns:
            The number of records of which all deliveries were given. Fewer than all: the next one has to wait.
        """
        decided, registry, budget = known.decided, self._registry, self._budget
        for at, record in enumerate(records):
            event = decided[record.offset]
            if event is not None:
                if budget.exceeded or event.revision_offset > registry.offset:
                    return at
                if self._give_event(known, event, _not_due(event) if event.due_us else None) is not None:
                    return at
            known.given_through = record.offset
            del decided[record.offset]
        return len(records)

    async def _give_rest(self, known: _Takeover, records: Sequence[ConsumerRecord]) -> None:
        """Give the deliveries of decided records to their lanes, with waits where a limit is reached."""
        while records:
            event = known.decided[records[0].offset]
            assert event is not None
            refusal = await self._wait_until_admitted(event)
            while (full := self._give_event(known, event, refusal)) is not None:
                why = await self._wait_for_room(event, full)
                if why is not None:
                    self._give_delivery(Delivery(event, event.destinations[0], event.earlier), full, why)
                    del event.destinations[0]
            known.given_through = records[0].offset
            del known.decided[records[0].offset]
            records = records[1:]
            records = records[self._give(known, records) :]

    def _give_event(self, known: _Takeover, event: EventRecord, refusal: Refusal | None) -> Lane | None:
        """Give the deliveries of an event to their lanes.

        Args:
            known: the partition.
            event: of it.
            refusal: why no lane may have its deliveries now; None: they may.

        Returns:
            The lane that is full, so that its delivery and those after it were not given; None: all were.
        """
        offset, destinations = event.record.offset, event.destinations
        while destinations:
            name = destinations[0]
            if offset <= known.recorded.index.last and known.recorded.index.has(offset, name):
                self._complete_earlier(known.recorded, event, name)
            else:
                lane = self._lanes.get(event.pipe, name) if name else None
                if (
                    lane is None
                    and known.partition.source == ENRICHED
                    and self._lanes.read_elsewhere(event.pipe, name)
                ):
                    event.delivery_completed()
                    del destinations[0]
                    continue
                if refusal is None and lane is not None and not lane.fits(event):
                    return lane
                self._give_delivery(Delivery(event, name, event.earlier), lane, refusal)
            del destinations[0]
        return None

    def _give_delivery(self, delivery: Delivery, lane: Lane | None, refusal: Refusal | None) -> None:
        try:
            if lane is None or refusal is not None:
                self._hand_over(delivery, lane, refusal)
                return
            lane.offer(delivery)
        except BaseException:
            delivery.leave()  # no lane has it: the repetition of the batch makes a new one
            raise
        if not self._offered:
            asyncio.get_running_loop().call_soon(self._dispatch)
        self._offered[lane] = None

    def _dispatch(self) -> None:
        """Start the requests of the lanes to which this turn of the event loop gave deliveries."""
        offered, self._offered = self._offered, {}
        for lane in offered:
            lane.dispatch()

    def _hand_over(self, delivery: Delivery, lane: Lane | None, refusal: Refusal | None) -> None:
        """Record the outcome of a delivery that no lane takes."""
        if not delivery.destination:
            self._recorder.filtered(delivery)
        elif lane is not None and refusal is not None:
            lane.refuse(delivery, refusal)
        elif refusal is PIPES_BEHIND:
            retry = retry_later(refusal.reason, refusal.detail, delivery.passes, self._topics.tiers)
            self._recorder.put_away(delivery, retry, NO_ATTEMPT)
        else:
            name = delivery.destination.decode("utf-8", "replace")
            self._recorder.put_away(delivery, deleted(delivery.event.pipe, name), NO_ATTEMPT)

    def _complete_earlier(self, recorded: RecordedOutcomes, event: EventRecord, name: bytes) -> None:
        """Complete a delivery whose outcome the last owner wrote; write its receipt if that one is missing."""
        outcome_and_reason = recorded.without_receipt.pop((event.record.offset, name), None)
        if outcome_and_reason is None:
            event.delivery_completed()
        else:
            self._recorder.missing_receipt(Delivery(event, name, event.earlier), *outcome_and_reason)

    async def _wait_until_admitted(self, event: EventRecord) -> Refusal | None:
        """Wait for room in the in-flight budget and for the event's revision of its pipe.

        Returns:
            Why its deliveries go to the retrier nevertheless; None: they go to their lanes.
        """
        assigned = event.partition.assigned
        while self._budget.exceeded:
            await self._budget.wait_for_release(_RECHECK_S)
            assigned.ensure_active()
        if event.revision_offset <= self._registry.offset or await self._wait_for_revision(event):
            return _not_due(event) if event.due_us else None
        return PIPES_BEHIND

    async def _wait_for_revision(self, event: EventRecord) -> bool:
        """Wait for a revision of a pipe; once only for one that does not arrive. Returns whether it arrived."""
        offset, assigned = event.revision_offset, event.partition.assigned
        if offset <= self._unreachable_offset:
            return False
        until_s = monotonic_s() + self._pipes_wait_s
        while not await self._registry.wait_for_offset(offset, min(_RECHECK_S, self._pipes_wait_s)):
            assigned.ensure_active()
            if monotonic_s() >= until_s:
                self._unreachable_offset = offset
                read_to = self._registry.offset
                self._health.warn(
                    "pipes",
                    f"offset {offset} of the topic pipes has not arrived; {read_to} is the last one read",
                )
                logger.error("pipes-behind", offset=offset, read_to=read_to, waited_s=self._pipes_wait_s)
                return False
        assigned.ensure_active()
        return True

    async def _wait_for_room(self, event: EventRecord, lane: Lane) -> Refusal | None:
        """Wait for a full lane where waiting is right; None: there is room now."""
        while self._lanes.may_wait(lane):
            await lane.wait_for_room(_RECHECK_S)
            event.partition.assigned.ensure_active()
            if lane.fits(event):
                return None
        return LANE_FULL


def _not_due(event: EventRecord) -> Refusal | None:
    wait_s = (event.due_us - now_us()) / MICROSECONDS
    return Refusal("not-due", "the destination asked for more time", wait_s) if wait_s > 0 else None
