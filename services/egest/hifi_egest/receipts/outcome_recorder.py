"""Record outcomes: the only place where an outcome becomes a receipt, a retry or a dead letter.

The order is fixed, and each step waits for the acknowledgement of the one before: the record for the retrier or the
dead letters, then the receipt, then the offset. If the process fails in between, no event is lost; at worst a record is
written twice.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from hifi.kafka.topics import Topics
from hifi.record.event import Record
from hifi.runtime import metrics
from hifi.runtime.clock import now_us
from hifi_egest.delivery.delivery import NO_ATTEMPT, Attempt, Delivery, complete_all
from hifi_egest.delivery.lease import PartitionLease
from hifi_egest.delivery.partition import SourcePartition
from hifi_egest.policy.outcome import DeadLettered, Parked, RetryLater
from hifi_egest.receipts import records
from hifi_egest.receipts.outbox import Outbox

_LEASE_CHECK_S: Final = 0.05
"""Time between two checks of the lease while it is not held, seconds."""


class _HandOver(NamedTuple):
    """A retry or a dead letter to write, and what its receipt says."""

    topic: str
    record: Record
    delivery: Delivery
    outcome: bytes
    reason: str
    attempt: Attempt


class OutcomeRecorder:
    """Writes the outcomes of deliveries to Kafka."""

    def __init__(self, topics: Topics, outbox: Outbox, lease: PartitionLease) -> None:
        """Start with nothing to write.

        Args:
            topics: of the stream.
            outbox: for all records.
            lease: needed for retries and dead letters.
        """
        self._topics = topics
        self._receipts = topics.receipts
        self._outbox = outbox
        self._lease = lease
        self._without_lease: list[_HandOver] = []
        self._lease_check: asyncio.TimerHandle | None = None

    def delivered(self, deliveries: Sequence[Delivery], attempt: Attempt) -> None:
        """Record the deliveries of a request. Receipts are written even if a partition was lost, because they are true.

        Args:
            deliveries: of the request, at least one.
            attempt: the request.
        """
        partition = deliveries[0].event.partition
        if len(deliveries) == 1 or all(each.event.partition is partition for each in deliveries):
            self._write_receipts(partition, deliveries, attempt)
            return
        by_partition: dict[SourcePartition, list[Delivery]] = {}
        for delivery in deliveries:
            by_partition.setdefault(delivery.event.partition, []).append(delivery)
        for partition, some in by_partition.items():
            self._write_receipts(partition, some, attempt)

    def filtered(self, delivery: Delivery) -> None:
        """Record that no destination wants the event."""
        metrics.OUTCOMES.labels(delivery.event.pipe, "", "filtered").inc()
        self._write_receipt(delivery, records.filtered_receipt(delivery))

    def put_away(
        self, delivery: Delivery, outcome: RetryLater | Parked | DeadLettered, attempt: Attempt
    ) -> None:
        """Hand a delivery to the retrier, park it or write its dead letter, then its receipt."""
        if isinstance(outcome, RetryLater):
            topic, name = self._topics.retry_in(outcome.tier), b"retry"
            record = records.waiting_record(delivery, outcome, now_us())
        elif isinstance(outcome, Parked):
            topic, name = self._topics.parked, b"parked"
            record = records.waiting_record(delivery, outcome, now_us())
        else:
            topic, name = self._topics.dead_letter, b"dead-letter"
            record = records.dead_letter_record(delivery, outcome)
        self._hand_over(_HandOver(topic, record, delivery, name, outcome.reason, attempt))

    def missing_receipt(self, delivery: Delivery, outcome: bytes, reason: bytes) -> None:
        """Write the receipt of a retry or dead letter that the last owner wrote without one."""
        self._write_receipt(delivery, records.receipt(delivery, outcome, NO_ATTEMPT, reason))

    def _write_receipts(
        self, partition: SourcePartition, deliveries: Sequence[Delivery], attempt: Attempt
    ) -> None:
        receipts = records.delivered_receipts(deliveries, attempt)
        self._outbox.put(self._receipts, partition.number, receipts, partial(complete_all, deliveries))

    def _write_receipt(self, delivery: Delivery, receipt: Record) -> None:
        self._outbox.put(self._receipts, delivery.event.partition.number, [receipt], delivery.complete)

    def _hand_over(self, one: _HandOver) -> None:
        partition = one.delivery.event.partition
        if partition.assigned.fenced:
            one.delivery.leave()  # the next owner reads the event again and hands it over itself
        elif self._lease.held():
            self._outbox.put(one.topic, partition.number, [one.record], partial(self._handed_over, one))
        else:
            self._wait_for_lease(one)

    def _handed_over(self, one: _HandOver) -> None:
        """Kafka acknowledged the retry or the dead letter."""
        delivery = one.delivery
        metrics.OUTCOMES.labels(
            delivery.event.pipe, delivery.destination.decode(), one.outcome.decode()
        ).inc()
        receipt = records.receipt(delivery, one.outcome, one.attempt, one.reason.encode())
        self._write_receipt(delivery, receipt)

    def _wait_for_lease(self, one: _HandOver) -> None:
        """Kafka may have given the partition to another member: wait until that is known."""
        self._without_lease.append(one)
        if self._lease_check is None:
            loop = asyncio.get_running_loop()
            self._lease_check = loop.call_later(_LEASE_CHECK_S, self._check_lease)

    def _check_lease(self) -> None:
        self._lease_check = None
        waiting, self._without_lease = self._without_lease, []
        held = self._lease.held()
        for one in waiting:
            if held or one.delivery.event.partition.assigned.fenced:
                self._hand_over(one)
            else:
                self._wait_for_lease(one)
