"""The step of egest: records of a partition become deliveries, each in its destination's lane."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from aiokafka import ConsumerRecord

from hifi import log, metrics
from hifi.clock import MICROSECONDS, monotonic_s, now_us
from hifi.dead_letters.record import dead_letter
from hifi.errors import NotAnEvent, Rejected
from hifi.event import (
    ACCEPTED,
    AMBIGUOUS,
    ATTEMPT,
    DESTINATION,
    DUE,
    FIRST_ATTEMPT,
    IN,
    MINUTE,
    PASS,
    PIPE,
    PIPE_VERSION,
    RAW,
    REPLAY,
    RETRY,
    SEQ,
    SERVICE,
    SOURCE,
    TIME,
    TO,
    TRACEPARENT,
    Headers,
    identity,
    number,
    with_headers,
)  # fmt: skip
from hifi.health import Health
from hifi.kafka.consumer import AssignedPartition, Batch
from hifi.pipe.registry import PipeRegistry
from hifi.topics import Topics
from hifi_egest.dedup.deduplicator import Copy, Memory, Once
from hifi_egest.dedup.takeover import Outcomes, key_of
from hifi_egest.delivery.delivery import Delivery, Event
from hifi_egest.delivery.partition import Held, Partition
from hifi_egest.lanes.destination_health import Refusal
from hifi_egest.lanes.lane import Lane, deleted
from hifi_egest.lanes.lanes import Lanes
from hifi_egest.policy import outcome
from hifi_egest.receipts import outcome_recorder as settle
from hifi_egest.receipts.outbox import Outbox
from hifi_egest.receipts.outcome_recorder import UNSENT, Settler

ENRICHED: Final = "enriched"
RETRY_OUT: Final = "retry-out"
_TURN: Final = 50
"""Records after which the lanes get their turn."""
_LOOK_S: Final = 0.1
_COPIED: Final = (PIPE, PIPE_VERSION, SEQ, ACCEPTED, MINUTE, RAW, REPLAY, TIME, TRACEPARENT)
FULL: Final = Refusal("lane-full", "the lane of the destination is full")
BEHIND: Final = Refusal("pipes-behind", "this instance has not seen the pipe's version yet")

logger = log.get(__name__)


class Intake:
    """Takes records in."""

    def __init__(
        self,
        topics: Topics,
        registry: PipeRegistry,
        lanes: Lanes,
        settler: Settler,
        outbox: Outbox,
        outcomes: Outcomes,
        held: Held,
        health: Health,
        pipes_wait_s: float,
    ) -> None:
        """Begin with no partition.

        Args:
            topics: of the stream.
            registry: of the pipes.
            lanes: started.
            settler: for what gets into no lane.
            outbox: for records that are no events.
            outcomes: started.
            held: what is in hand.
            health: told when a version of the pipes does not come.
            pipes_wait_s: bound on waiting for a pipe's version, seconds.
        """
        self._topics = topics
        self._registry = registry
        self._lanes = lanes
        self._settler = settler
        self._outbox = outbox
        self._outcomes = outcomes
        self._held = held
        self._health = health
        self._pipes_wait_s = pipes_wait_s
        self._unreachable = -1
        self._partitions: dict[AssignedPartition, Partition] = {}
        self._endings: set[asyncio.Task[None]] = set()

    async def step(self, work: AssignedPartition, records: Batch) -> None:
        """Give each record's deliveries to their lanes; their outcomes finish the offsets later."""
        partition = self._partitions.get(work) or await self._begin(work, records[0])
        records = [record for record in records if record.offset > partition.taken]
        if not records:
            return
        fetched_us = now_us()
        partition.once.batch(records[0].offset, self._outcomes.floors(work.partition))
        for turn, record in enumerate(records, 1):
            work.ensure_active()
            await self._take(partition, record, fetched_us)
            partition.taken = record.offset
            if turn % _TURN == 0:
                await asyncio.sleep(0)

    async def poisoned(self, work: AssignedPartition, record: ConsumerRecord, error: Exception) -> None:
        """A record on which egest itself failed again and again: a dead letter for each of its deliveries."""
        headers = dict(record.headers)
        partition = self._partitions.get(work)
        given = partition.given_of(record.offset) if partition is not None else set()
        wanted = headers.get(TO if work.topic == self._topics.enriched else DESTINATION, b"").split(b",")
        names = [name for name in wanted if name not in given]
        why = Rejected("poisoned", f"egest fails on it ({type(error).__name__}); its log says how")
        written = [asyncio.Event() for _ in names]
        for name, event in zip(names, written, strict=True):
            self._put_away(work, record, why, now_us(), event.set, name)
        for event in written:
            await event.wait()
        work.complete(record.offset)

    async def _begin(self, work: AssignedPartition, first: ConsumerRecord) -> Partition:
        """The first records of an assignment: learn what the last owner did."""
        source = ENRICHED if work.topic == self._topics.enriched else RETRY_OUT
        memory = Memory.read(work.metadata)
        floors: Mapping[str, int] | None = memory.floors if memory is not None else {}
        if memory is None and work.committed is not None:
            floors = None  # an operator moved the offset: what is read again is wanted again
        committed = work.committed if work.committed is not None else first.offset
        for before in [one for one in self._partitions.values() if one.work.tp == work.tp]:
            await (
                before.idle()
            )  # lost and won back: first let its requests end, so that their receipts are there
        found = await self._outcomes.take_over(source, work.partition, committed, first.timestamp, floors)
        if not work.active:
            work.abandon()
            work.ensure_active()
        once = Once(memory or Memory(), found.done)
        for key in found.keys:
            once.remember(key)
        partition = self._partitions[work] = Partition(work, source, once, found, self._held)
        work.metadata_at = once.metadata_at
        task = asyncio.create_task(self._end(partition))
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return partition

    async def _end(self, partition: Partition) -> None:
        """When the partition is given up: drop what was not begun, wait for what was, leave the rest."""
        await partition.work.revoked.wait()
        self._lanes.drop(partition)
        await partition.idle()
        del self._partitions[partition.work]
        partition.work.abandon()

    async def _take(self, partition: Partition, record: ConsumerRecord, fetched_us: int) -> None:
        work = partition.work
        headers = dict(record.headers)
        try:
            event, wanted = _event(partition, record, headers, fetched_us)
            copy = _judge(partition, record, headers, event.accepted_us)
        except NotAnEvent as why:
            self._put_away(work, record, why, fetched_us, lambda: work.complete(record.offset))
            return
        if copy is Copy.COPY:
            metrics.COPIES.labels(work.topic).inc()
            work.complete(record.offset)
            return
        if copy is Copy.RESET:
            logger.error(
                "raw-offsets-went-back", topic=work.topic, partition=work.partition, offset=record.offset
            )
        while self._held.overfull:
            await self._held.less(_LOOK_S)
            work.ensure_active()
        refusal = self._not_due(headers)
        version = int(headers[PIPE_VERSION])
        if version > self._registry.version and not await self._reached(work, version):
            refusal = BEHIND
        event = partition.resumed(event, len(wanted))
        retried = partition.source == RETRY_OUT
        for name in [one for one in wanted if one not in partition.given]:
            if record.offset <= partition.finished.done.last and partition.finished.done.has(
                record.offset, name
            ):
                self._finished_before(partition, event, name, headers)
            else:
                lane = self._lanes.get(headers[PIPE], name) if name else None
                reason = refusal
                if lane is not None and refusal is None and not lane.fits(event.size_bytes, retried=retried):
                    reason = await self._room(work, lane, event.size_bytes, retried=retried)
                delivery = _delivery(event, name, headers)
                try:
                    self._give(delivery, lane, reason)
                except BaseException:
                    delivery.left()  # nobody has it; the record is taken again
                    raise
            partition.given.add(name)

    def _give(self, delivery: Delivery, lane: Lane | None, refusal: Refusal | None) -> None:
        if not delivery.destination:
            self._settler.filtered(delivery)
        elif lane is not None and refusal is None:
            lane.offer(delivery)
        elif lane is not None and refusal is not None:
            lane.overflow(delivery, refusal)
        elif refusal is BEHIND:
            what = outcome.hand_over(BEHIND.reason, BEHIND.detail, delivery.passes, self._topics.tiers)
            self._settler.hand_over(delivery, what, UNSENT)
        else:
            self._settler.dead(
                delivery,
                deleted(delivery.event.pipe, delivery.destination.decode("utf-8", "replace")),
                UNSENT,
            )

    async def _room(
        self, work: AssignedPartition, lane: Lane, size_bytes: int, *, retried: bool
    ) -> Refusal | None:
        """Wait for a full lane where that is right; None: there is room now."""
        while self._lanes.may_wait(lane):
            await lane.room(_LOOK_S)
            work.ensure_active()
            if lane.fits(size_bytes, retried=retried):
                return None
        return FULL

    async def _reached(self, work: AssignedPartition, version: int) -> bool:
        """Wait for a version of the pipes, within bounds, and only once for each that does not come."""
        if version <= self._unreachable:
            return False
        until_s = monotonic_s() + self._pipes_wait_s
        while not await self._registry.wait_for_version(version, min(_LOOK_S, self._pipes_wait_s)):
            work.ensure_active()
            if monotonic_s() >= until_s:
                self._unreachable = version
                self._health.warn(
                    "pipes", f"version {version} does not come; {self._registry.version} is known"
                )
                logger.error(
                    "pipes-behind", version=version, known=self._registry.version, waited_s=self._pipes_wait_s
                )
                return False
        work.ensure_active()
        return True

    @staticmethod
    def _not_due(headers: dict[str, bytes]) -> Refusal | None:
        due = headers.get(DUE)
        wait_s = (int(due) - now_us()) / MICROSECONDS if due is not None and due.isdigit() else 0.0
        return Refusal("not-due", "the destination asked for more time", wait_s) if wait_s > 0 else None

    def _finished_before(
        self, partition: Partition, event: Event, name: bytes, headers: dict[str, bytes]
    ) -> None:
        """The last owner did it; what it could not say any more is said now."""
        owed = partition.finished.unreceipted.pop((event.record.offset, name), None)
        if owed is None:
            event.finished()
        else:
            self._settler.receipt_only(_delivery(event, name, headers), *owed)

    def _put_away(
        self,
        work: AssignedPartition,
        record: ConsumerRecord,
        why: Rejected,
        fetched_us: int,
        then: Callable[[], None],
        destination: bytes = b"",
    ) -> None:
        headers = with_headers(record.headers, {DESTINATION: destination} if destination else {})
        letter = dead_letter(record.key, record.value, headers, settle.SERVICE, why, fetched_us)
        logger.warning(
            "not-delivered",
            topic=work.topic,
            partition=work.partition,
            offset=record.offset,
            reason=why.reason,
        )
        self._outbox.put(self._topics.dead_letter, work.partition, letter, then)


def _event(
    partition: Partition, record: ConsumerRecord, headers: dict[str, bytes], fetched_us: int
) -> tuple[Event, list[bytes]]:
    """The event in a record and the names of the destinations to send it to; b"": none wants it."""
    known = identity(headers)
    if partition.source == ENRICHED:
        to = headers.get(TO)
        if to is None:
            raise NotAnEvent(f"the header {TO} is missing")
        wanted = list(dict.fromkeys(to.split(b",")))
    else:
        wanted = [headers.get(DESTINATION, b"")]
        if not wanted[0]:
            raise NotAnEvent(f"the header {DESTINATION} is missing")
        for name in (PASS, ATTEMPT, FIRST_ATTEMPT, AMBIGUOUS):
            number(headers, name, 0)
    receipt: Headers = [(name, headers[name]) for name in _COPIED if name in headers]
    receipt.append((SOURCE, b"%b:%d" % (partition.source.encode(), record.offset)))
    receipt.append((IN, b"%d" % fetched_us))
    return Event(record, partition, receipt, known.pipe, headers[SEQ], known.accepted_us, fetched_us), wanted


def _judge(partition: Partition, record: ConsumerRecord, headers: dict[str, bytes], accepted_us: int) -> Copy:
    """Whether the record is a copy of one that was read before."""
    line, rank = None, 0
    if partition.source == ENRICHED:
        # A replay that came to enrich again has its old offset in `raw`; its key alone tells copies.
        if RAW in headers and not (REPLAY in headers and headers.get(SERVICE) == b"enrich"):
            line, rank = "raw", number(headers, RAW)
    elif RETRY in headers:
        tier, _, offset = headers[RETRY].decode("utf-8", "replace").rpartition(":")
        if tier and offset.isdigit():
            line, rank = tier, int(offset)
    return partition.once.judge(record.offset, key_of(partition.source, headers), line, rank, accepted_us)


def _delivery(event: Event, name: bytes, headers: dict[str, bytes]) -> Delivery:
    if event.partition.source == ENRICHED:
        return Delivery(event, name)
    return Delivery(
        event,
        name,
        number(headers, ATTEMPT, 0),
        number(headers, FIRST_ATTEMPT, 0),
        number(headers, PASS, 0),
        number(headers, AMBIGUOUS, 0),
    )
