"""Record outcomes: the only place where an outcome becomes a receipt, a retry, a parked delivery or a dead letter.

The order is fixed, and each step waits for the acknowledgement of the one before: the record for the retrier or the
dead letters, then the receipt, then the offset. If the process fails in between, no event is lost; at worst a record is
written twice. The records of one turn of the event loop go to Kafka together. What Kafka has not got yet when the lease
ends is taken back.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from aiokafka import ConsumerRecord

from hifi.delivery.attempt import Attempt
from hifi.delivery.dead_letters.record import dead_letter
from hifi.delivery.destination_state import DestinationName, StateChange, state_record
from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.partition_lease import PartitionLease
from hifi.kafka.producer import Producer, Sending, is_sendable
from hifi.kafka.topics import Topics
from hifi.record.fields import with_fields
from hifi.record.headers import DESTINATION
from hifi.record.record import Record
from hifi.runtime import log, metrics
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Overloaded, Rejected
from hifi_egest.delivery.delivery import NO_ATTEMPT, Delivery, SourcePartition, complete_all, decide_all
from hifi_egest.outcomes import records
from hifi_egest.outcomes.records import SERVICE
from hifi_egest.policy.outcome import DeadLettered, Filtered, HandedOver, Outcome, Parked, RetryLater

_LEASE_CHECK_S: Final = 0.05
"""Time between two checks of the lease while it is not held or something was sent that needs it, seconds."""
_CHUNK: Final = 200
_TRIES: Final = 5

Entry: TypeAlias = tuple[Sequence[Record], Callable[[], None], Callable[[], None] | None]
"""Records, and what to call: when they are acknowledged, or when they are withdrawn."""
_Target: TypeAlias = tuple[str, int, AssignedPartition | None]
"""Topic, partition, and the partition that has to be this instance's while they are sent; None: there is none."""
_ByPartition: TypeAlias = Iterable[tuple[SourcePartition, Sequence[Delivery]]]

logger = log.get(__name__)


class _HandOver(NamedTuple):
    """A delivery whose outcome has a record of its own, and the contents of its receipt."""

    record: Record
    delivery: Delivery
    outcome: HandedOver
    attempt: Attempt
    breaker: bytes


def _hand_over(delivery: Delivery, outcome: HandedOver, attempt: Attempt, breaker: bytes) -> _HandOver:
    record = records.hand_over_record(delivery, outcome, now_us())
    if not is_sendable(record):
        outcome = DeadLettered("too-large", f"with what a {outcome.name.decode()} adds, no topic can hold it")
        record = records.hand_over_record(delivery, outcome, now_us())
    return _HandOver(record, delivery, outcome, attempt, breaker)


class OutcomeRecorder:
    """Writes the outcomes of deliveries to Kafka."""

    def __init__(self, topics: Topics, outbox: "Outbox", lease: PartitionLease) -> None:
        """Start with nothing to write.

        Args:
            topics: of the stream.
            outbox: for all records.
            lease: needed for retries, parked deliveries and dead letters.
        """
        self._topics = topics
        self._receipts = topics.receipts
        self._outbox = outbox
        self._lease = lease
        self._without_lease: list[_HandOver] = []
        self._lease_check: asyncio.TimerHandle | None = None

    def record(
        self,
        deliveries: Sequence[Delivery],
        outcome: Outcome,
        attempt: Attempt = NO_ATTEMPT,
        breaker: bytes = b"",
    ) -> None:
        """Record the outcome of deliveries, which completes their offsets.

        Receipts of what was delivered are written even if a partition was lost, because they are true.

        Args:
            deliveries: with the same outcome, at least one.
            outcome: of them.
            attempt: the last request of this pass.
            breaker: state of the destination's circuit breaker for the receipts; empty: it has never opened.
        """
        decide_all(deliveries)
        if isinstance(outcome, HandedOver):
            for delivery in deliveries:
                self._write_before_receipt(_hand_over(delivery, outcome, attempt, breaker))
            return
        if isinstance(outcome, Filtered):
            metrics.OUTCOMES.labels(deliveries[0].event.pipe, "", "filtered").inc(len(deliveries))
        first_partition = deliveries[0].event.partition
        by_partition: _ByPartition = ((first_partition, deliveries),)
        if any(delivery.event.partition is not first_partition for delivery in deliveries[1:]):
            by_partition = _by_partition(deliveries)
        for partition, group in by_partition:
            receipts = records.receipts(group, outcome, attempt, breaker)
            self._outbox.send(self._receipts, partition.number, receipts, partial(complete_all, group))

    def reject(
        self,
        assigned: AssignedPartition,
        record: ConsumerRecord,
        error: Rejected,
        fetched_us: int,
        acknowledged: Callable[[], None],
        destination: bytes = b"",
    ) -> None:
        """Write the dead letter of a record that is no delivery, or on which egest fails.

        Args:
            assigned: partition of the record.
            record: as read.
            error: reason and detail.
            fetched_us: when the record was fetched, microseconds since 1970 UTC.
            acknowledged: called when Kafka has acknowledged the dead letter.
            destination: name of the one that does not get the event; empty: it is not known.
        """
        logger.warning(
            "record-rejected",
            topic=assigned.topic,
            partition=assigned.partition,
            offset=record.offset,
            reason=error.reason,
        )
        headers = with_fields(record.headers, {DESTINATION: destination} if destination else {})
        dead_letter_record = dead_letter(record.key, record.value, headers, SERVICE, error, fetched_us)
        self._outbox.send(self._topics.dead_letter, assigned.partition, [dead_letter_record], acknowledged)

    def record_state(self, name: DestinationName, change: StateChange) -> None:
        """Write the new state of a destination's circuit breaker or parking for observe."""
        self._outbox.send(self._topics.destinations, 0, [state_record(name, change)], lambda: None)

    def _write_before_receipt(self, hand_over: _HandOver) -> None:
        """Write the record of an outcome while the lease is held, then its receipt."""
        partition = hand_over.delivery.event.partition
        if partition.assigned.fenced:
            hand_over.delivery.leave()  # the next owner reads the event again and hands it over itself
        elif self._lease.held():
            topic = self._topic_of(hand_over.outcome)
            acknowledged = partial(self._write_receipt, hand_over)
            withdrawn = partial(self._write_before_receipt, hand_over)
            owner = partition.assigned
            self._outbox.send(topic, partition.number, [hand_over.record], acknowledged, owner, withdrawn)
        else:
            self._wait_for_lease(hand_over)

    def _write_receipt(self, hand_over: _HandOver) -> None:
        """Write the receipt of a retry, a parked delivery or a dead letter, once Kafka has acknowledged that."""
        _, delivery, outcome, attempt, breaker = hand_over
        event = delivery.event
        metrics.OUTCOMES.labels(
            event.pipe, delivery.destination.decode("utf-8", "replace"), outcome.name.decode()
        ).inc()
        receipts = records.receipts([delivery], outcome, attempt, breaker)
        self._outbox.send(self._receipts, event.partition.number, receipts, partial(complete_all, [delivery]))

    def _topic_of(self, outcome: HandedOver) -> str:
        if isinstance(outcome, RetryLater):
            return self._topics.retry_in(outcome.tier)
        return self._topics.parked if isinstance(outcome, Parked) else self._topics.dead_letter

    def _wait_for_lease(self, hand_over: _HandOver) -> None:
        """Kafka may have given the partition to another member: wait until that is known."""
        self._without_lease.append(hand_over)
        if self._lease_check is None:
            loop = asyncio.get_running_loop()
            self._lease_check = loop.call_later(_LEASE_CHECK_S, self._check_lease)

    def _check_lease(self) -> None:
        self._lease_check = None
        hand_overs, self._without_lease = self._without_lease, []
        has_lease = self._lease.held()
        for hand_over in hand_overs:
            if has_lease or hand_over.delivery.event.partition.assigned.fenced:
                self._write_before_receipt(hand_over)
            else:
                self._wait_for_lease(hand_over)


class Outbox:
    """Sends records, and calls back when Kafka has acknowledged them."""

    def __init__(self, producer: Producer, lease: PartitionLease) -> None:
        """Start with nothing to write.

        Args:
            producer: of the service.
            lease: needed to send records that have an owner.
        """
        self._producer = producer
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        """Has the error if Kafka answers and records still cannot be written; egest must stop then."""
        self._pending: dict[_Target, list[Entry]] = {}
        self._owned: dict[Sending, tuple[AssignedPartition, list[Entry]]] = {}
        """Records that were sent with an owner and are not acknowledged yet."""
        self._owner_check: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def send(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        acknowledged: Callable[[], None],
        owner: AssignedPartition | None = None,
        withdrawn: Callable[[], None] | None = None,
    ) -> None:
        """Send records, at least one; `acknowledged` is called once, when Kafka has acknowledged all of them.

        Args:
            topic: name.
            partition: number.
            records: to send.
            acknowledged: see above.
            owner: they may be sent only while this partition is this instance's; None: always.
            withdrawn: called in place of `acknowledged` once that is not certain any more: Kafka will not get them, or
                it has got them and the partition is another instance's.
        """
        if not self._pending:
            self._loop.call_soon(self._flush)
        target = topic, partition, owner
        entries = self._pending.get(target)
        if entries is None:
            entries = self._pending[target] = []
        entries.append((records, acknowledged, withdrawn))

    def _flush(self) -> None:
        pending, self._pending = self._pending, {}
        for target, entries in pending.items():
            try:
                topic, partition, owner = target
                records = [record for entry_records, _, _ in entries for record in entry_records]
                sending = self._producer.send(topic, partition, records)
            except (Overloaded, Rejected):
                self._send_with_retries(target, entries)
            except Exception as error:  # noqa: BLE001 - this is a callback of the loop: no caller handles the error
                self._fail(error)
            else:
                sending.acknowledged.add_done_callback(partial(self._call_back, target, entries))
                if owner is not None:
                    self._watch(owner, entries, sending)

    def _call_back(
        self, target: _Target, entries: list[Entry], acknowledgement: asyncio.Future[None]
    ) -> None:
        if acknowledgement.cancelled():
            return
        if acknowledgement.exception() is not None:
            self._send_with_retries(target, entries)
            return
        topic, partition, _ = target
        _call_each(topic, partition, (acknowledged for _, acknowledged, _ in entries))

    def _send_with_retries(self, target: _Target, entries: list[Entry]) -> None:
        """Send in the background, with waits for buffer space and repeated tries."""
        task = self._loop.create_task(self._send_chunks(target, entries))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_chunks(self, target: _Target, entries: list[Entry]) -> None:
        for chunk in _chunks(entries):
            if not await self._send_chunk(target, chunk):
                return

    async def _send_chunk(self, target: _Target, chunk: list[Entry]) -> bool:
        """Send the records of entries; returns whether more may be sent."""
        topic, partition, owner = target
        all_records = [record for entry_records, _, _ in chunk for record in entry_records]
        records = [record for record in all_records if is_sendable(record)]
        if len(records) < len(all_records):
            # Receipts of records with keys or headers that hifi does not write: the others must be written.
            refused_count = len(all_records) - len(records)
            logger.error("records-refused", topic=topic, partition=partition, records=refused_count)
        for attempt in range(1, _TRIES + 1):
            try:
                sending = await self._producer.send_when_room(topic, partition, records)
                if owner is not None:
                    self._watch(owner, chunk, sending)
                await asyncio.wait({sending.acknowledged})
                if sending.acknowledged.cancelled():
                    return True
                sending.acknowledged.result()
            except Overloaded:
                return False  # the producer has stopped: the next owner repeats it
            except Exception as error:
                logger.exception("write-failed", topic=topic, partition=partition, error=repr(error))
                if attempt == _TRIES:
                    self._fail(error)
                    return False
                await asyncio.sleep(0.2 * attempt)
            else:
                break
        _call_each(topic, partition, (acknowledged for _, acknowledged, _ in chunk))
        return True

    def _watch(self, owner: AssignedPartition, entries: list[Entry], sending: Sending) -> None:
        """Withdraw what was sent once its owner is not certain any more."""
        self._owned[sending] = owner, entries
        sending.acknowledged.add_done_callback(lambda _: self._owned.pop(sending, None))
        if self._owner_check is None:
            self._owner_check = self._loop.call_later(_LEASE_CHECK_S, self._check_owners)
        self._withdraw_lost(sending, has_lease=self._lease.held())

    def _check_owners(self) -> None:
        self._owner_check = None
        has_lease = self._lease.held()
        for sending in list(self._owned):
            self._withdraw_lost(sending, has_lease=has_lease)
        if self._owned:
            self._owner_check = self._loop.call_later(_LEASE_CHECK_S, self._check_owners)

    def _withdraw_lost(self, sending: Sending, *, has_lease: bool) -> None:
        owner, entries = self._owned[sending]
        if sending.acknowledged.done():
            return
        if owner.fenced or not (has_lease or sending.handed_over):
            del self._owned[sending]
            sending.abandon()
            _call_each(
                owner.topic,
                owner.partition,
                (withdrawn for _, _, withdrawn in entries if withdrawn is not None),
            )

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)


def _call_each(topic: str, partition: int, calls: Iterable[Callable[[], None]]) -> None:
    """Call what entries of a partition wait for, also behind a call that fails."""
    for call in calls:
        try:
            call()
        except Exception:
            logger.exception("acknowledgement-failed", topic=topic, partition=partition)


def _chunks(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Neighbours with at most _CHUNK records together, or one entry with more."""
    chunk: list[Entry] = []
    record_count = 0
    for entry in entries:
        if chunk and record_count + len(entry[0]) > _CHUNK:
            yield chunk
            chunk, record_count = [], 0
        chunk.append(entry)
        record_count += len(entry[0])
    if chunk:
        yield chunk


def _by_partition(deliveries: Sequence[Delivery]) -> _ByPartition:
    by_partition: dict[SourcePartition, list[Delivery]] = {}
    for delivery in deliveries:
        by_partition.setdefault(delivery.event.partition, []).append(delivery)
    return by_partition.items()
