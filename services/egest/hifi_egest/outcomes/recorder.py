"""Record outcomes: the only place where an outcome becomes a receipt, a retry, a parked delivery or a dead letter.

The order is fixed, and each step waits for the acknowledgement of the one before: the record for the retrier or the
dead letters, then the receipt, then the offset. If the process fails in between, no event is lost; at worst a record is
written twice. The records of one turn of the event loop go to Kafka together.
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
from hifi.kafka.producer import Producer, is_sendable
from hifi.kafka.topics import Topics
from hifi.record.fields import with_fields
from hifi.record.headers import DESTINATION
from hifi.record.record import Record
from hifi.runtime import log, metrics
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Overloaded, Rejected
from hifi_egest.delivery.delivery import NO_ATTEMPT, Delivery, SourcePartition, complete_all, decide_all
from hifi_egest.delivery.lease import PartitionLease
from hifi_egest.outcomes import records
from hifi_egest.outcomes.records import SERVICE
from hifi_egest.policy.outcome import DeadLettered, Filtered, HandedOver, Outcome, Parked, RetryLater

_LEASE_CHECK_S: Final = 0.05
"""Time between two checks of the lease while it is not held, seconds."""
_CHUNK: Final = 200
_TRIES: Final = 5

Entry: TypeAlias = tuple[Sequence[Record], Callable[[], None]]
_TopicPartition: TypeAlias = tuple[str, int]
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
            self._outbox.send(topic, partition.number, [hand_over.record], acknowledged)
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

    def __init__(self, producer: Producer) -> None:
        """Start with nothing to write, with the producer of the service."""
        self._producer = producer
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        """Has the error if Kafka answers and records still cannot be written; egest must stop then."""
        self._pending: dict[_TopicPartition, list[Entry]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def send(
        self, topic: str, partition: int, records: Sequence[Record], acknowledged: Callable[[], None]
    ) -> None:
        """Send records, at least one; `acknowledged` is called once, when Kafka has acknowledged all of them."""
        if not self._pending:
            self._loop.call_soon(self._flush)
        topic_partition = topic, partition
        entries = self._pending.get(topic_partition)
        if entries is None:
            entries = self._pending[topic_partition] = []
        entries.append((records, acknowledged))

    def _flush(self) -> None:
        pending, self._pending = self._pending, {}
        for topic_partition, entries in pending.items():
            try:
                records = [record for entry_records, _ in entries for record in entry_records]
                sending = self._producer.send(*topic_partition, records)
            except (Overloaded, Rejected):
                self._send_with_retries(topic_partition, entries)
            except Exception as error:  # noqa: BLE001 - this is a callback of the loop: no caller handles the error
                self._fail(error)
            else:
                sending.acknowledged.add_done_callback(partial(self._call_back, topic_partition, entries))

    def _call_back(
        self, topic_partition: _TopicPartition, entries: list[Entry], acknowledgement: asyncio.Future[None]
    ) -> None:
        if acknowledgement.cancelled():
            return
        if acknowledgement.exception() is not None:
            self._send_with_retries(topic_partition, entries)
            return
        _acknowledge(topic_partition, entries)

    def _send_with_retries(self, topic_partition: _TopicPartition, entries: list[Entry]) -> None:
        """Send in the background, with waits for buffer space and repeated tries."""
        task = self._loop.create_task(self._send_chunks(topic_partition, entries))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_chunks(self, topic_partition: _TopicPartition, entries: list[Entry]) -> None:
        for chunk in _chunks(entries):
            if not await self._send_chunk(topic_partition, chunk):
                return

    async def _send_chunk(self, topic_partition: _TopicPartition, chunk: list[Entry]) -> bool:
        """Send the records of entries; returns whether more may be sent."""
        topic, partition = topic_partition
        all_records = [record for entry_records, _ in chunk for record in entry_records]
        records = [record for record in all_records if is_sendable(record)]
        if len(records) < len(all_records):
            # Receipts of records with keys or headers that hifi does not write: the others must be written.
            refused_count = len(all_records) - len(records)
            logger.error("records-refused", topic=topic, partition=partition, records=refused_count)
        for attempt in range(1, _TRIES + 1):
            try:
                await self._producer.send_and_wait(topic, partition, records)
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
        _acknowledge(topic_partition, chunk)
        return True

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)


def _acknowledge(topic_partition: _TopicPartition, entries: Iterable[Entry]) -> None:
    """Call back for each entry, also behind one whose call fails."""
    for _, acknowledged in entries:
        try:
            acknowledged()
        except Exception:
            logger.exception("acknowledgement-failed", topic=topic_partition[0], partition=topic_partition[1])


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
