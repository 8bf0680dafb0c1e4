"""The data of egest: a source partition, its events, their deliveries, and the requests that carry these."""

import asyncio
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from aiokafka import ConsumerRecord

from hifi.delivery.attempt import Attempt
from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.partition_lease import PartitionLease
from hifi.record.headers import Headers
from hifi_egest.delivery.memory_bounds import InFlightBudget, LaneRoom
from hifi_egest.policy.breaker import Permit

ENRICHED: Final = "enriched"
RETRY_OUT: Final = "retry-out"
_OVERHEAD_BYTES: Final = 1024
"""Estimated memory of a delivery's headers, key and Python objects."""
_ENVELOPE_BYTES: Final = 256
"""Estimated size of an event's attributes in a batch."""
NO_ATTEMPT = Attempt()
"""The outcome was decided without a request."""


class SourcePartition:
    """A partition of `enriched` or `retry-out`, from its assignment to its revocation."""

    def __init__(self, assigned: AssignedPartition, source: str, budget: InFlightBudget) -> None:
        """Start with nothing in flight.

        Args:
            assigned: the consumer's view of the partition.
            source: `enriched` or `retry-out`.
            budget: shared by all partitions.
        """
        self.assigned = assigned
        self.number = assigned.partition
        self.source = source
        self.source_name = source.encode()
        self._budget = budget
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self, size_bytes: int) -> None:
        """Count a new delivery."""
        if not self._in_flight:
            self._idle.clear()
        self._in_flight += 1
        self._budget.add(size_bytes)

    def end(self, deliveries: int, size_bytes: int) -> None:
        """Count deliveries as completed, or as left to the partition's next owner; `size_bytes`: of all together."""
        self._in_flight -= deliveries
        self._budget.release(deliveries, size_bytes)
        if not self._in_flight:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until no delivery is in flight."""
        await self._idle.wait()


class EarlierAttempts(NamedTuple):
    """The earlier passes of a delivery, as its record on `retry-out` states them.

    Attributes:
        attempts: requests so far.
        started_us: when its first request was sent, or when it was handed over before without one, microseconds since
            1970 UTC; 0: neither has happened.
        passes: completed retry passes.
        ambiguous: requests that may have arrived although no answer came.
    """

    attempts: int = 0
    started_us: int = 0
    passes: int = 0
    ambiguous: int = 0


NO_EARLIER_ATTEMPTS: Final = EarlierAttempts()


class EventRecord:
    """A parsed record.

    Attributes:
        record: as read.
        partition: that it was read from.
        receipt_hop: value of the header `hifi_hop` of its receipts.
        copied: headers that its receipts have from it, beside `hifi`.
        pipe: name of the pipe.
        seq: identity of the event.
        accepted_us: when ingest accepted it, microseconds since 1970 UTC.
        fetched_us: when egest fetched it, microseconds since 1970 UTC.
        revision_offset: offset in the topic `pipes` that egest must have read before it delivers the event.
        due_us: the destination accepts no request before this time, microseconds since 1970 UTC; 0: at any time.
        earlier: attempts of earlier passes.
        key, log, log_offset: its identity, which its copies share; see hifi_egest.dedup.copy_key.
        destinations: names of the destinations whose delivery has not been given to a lane yet; b"": none wants it.
        pending: deliveries without a recorded outcome.
        size_bytes: estimated size of one delivery in memory.
        batch_bytes: estimated size of one delivery in a batch.
    """

    __slots__ = (
        "accepted_us", "batch_bytes", "copied", "destinations", "due_us", "earlier", "fetched_us", "key", "log",
        "log_offset", "partition", "pending", "pipe", "receipt_hop", "record", "revision_offset", "seq", "size_bytes",
    )  # fmt: skip

    def __init__(
        self,
        record: ConsumerRecord,
        partition: SourcePartition,
        receipt_hop: bytes,
        copied: Headers,
        pipe: str,
        seq: bytes,
        accepted_us: int,
        fetched_us: int,
        destinations: list[bytes] | None = None,
        revision_offset: int = -1,
        due_us: int = 0,
        earlier: EarlierAttempts = NO_EARLIER_ATTEMPTS,
        key: bytes = b"",
        log: str | None = None,
        log_offset: int = 0,
    ) -> None:
        self.record = record
        self.partition = partition
        self.receipt_hop = receipt_hop
        self.copied = copied
        self.pipe = pipe
        self.seq = seq
        self.accepted_us = accepted_us
        self.fetched_us = fetched_us
        self.destinations = destinations if destinations is not None else []
        self.revision_offset = revision_offset
        self.due_us = due_us
        self.earlier = earlier
        self.key = key
        self.log = log
        self.log_offset = log_offset
        self.pending = len(self.destinations)
        value_bytes = len(record.value or b"")
        self.size_bytes = value_bytes + _OVERHEAD_BYTES
        self.batch_bytes = value_bytes + _ENVELOPE_BYTES

    def delivery_completed(self) -> None:
        """Count a delivery whose outcome is recorded; the last one completes the record's offset."""
        self.pending -= 1
        if not self.pending:
            self.partition.assigned.complete(self.record.offset)


class DeliveryState(IntEnum):
    """The state of a delivery in egest."""

    QUEUED = 0
    TAKEN = 1
    """It is part of an outbound request."""
    REMOVED = 2
    """It was handed over or dropped while it was queued."""
    DECIDED = 3
    """Its outcome is being written."""


class Delivery:
    """One event for one destination.

    Attributes:
        destination: its name.
        room: of its lane; None: it has no lane.
        attempts: requests so far.
        started_us: when its first request was sent, or when it was handed over before without one, microseconds since
            1970 UTC; 0: neither has happened.
        passes: completed retry passes.
        ambiguous: requests that may have arrived although no answer came.
        local: requests in this pass.
        pass_started_s: when the first of these was sent, monotonic seconds.
        queued_s: when it was queued, monotonic seconds.
        first_of_key: it is the delivery of its key that may be sent.
    """

    __slots__ = (
        "ambiguous", "attempts", "destination", "event", "first_of_key", "key", "local", "pass_started_s", "passes",
        "queued_s", "room", "started_us", "state",
    )  # fmt: skip

    def __init__(
        self,
        event: EventRecord,
        destination: bytes,
        earlier: EarlierAttempts = NO_EARLIER_ATTEMPTS,
        room: LaneRoom | None = None,
    ) -> None:
        self.event = event
        self.destination = destination
        self.room = room
        self.key: bytes | None = event.record.key
        self.attempts, self.started_us, self.passes, self.ambiguous = earlier
        self.local = 0
        self.pass_started_s = 0.0
        self.queued_s = 0.0
        self.state = DeliveryState.QUEUED
        self.first_of_key = False
        event.partition.begin(event.size_bytes)

    def leave(self) -> None:
        """Release the delivery without an outcome: the partition's next owner reads it again."""
        if self.room is not None:
            if self.state is DeliveryState.DECIDED:
                self.room.unrecorded -= 1
            elif self.state is not DeliveryState.QUEUED:
                self.room.release(self.event.size_bytes)
        self.event.partition.end(1, self.event.size_bytes)


def decide_all(deliveries: Sequence[Delivery]) -> None:
    """Take deliveries out of their lane, as their outcome is being written."""
    for delivery in deliveries:
        room = delivery.room
        if room is not None:
            room.unrecorded += 1
            if delivery.state is not DeliveryState.QUEUED:  # else the lane did not even queue it
                room.release(delivery.event.size_bytes)
        delivery.state = DeliveryState.DECIDED


def complete_all(deliveries: Sequence[Delivery]) -> None:
    """Release deliveries of one partition after Kafka acknowledged their outcomes."""
    size_bytes = 0
    complete_offsets: list[int] = []
    for delivery in deliveries:
        event = delivery.event
        size_bytes += event.size_bytes
        if delivery.room is not None:
            delivery.room.unrecorded -= 1
        event.pending -= 1
        if not event.pending:
            complete_offsets.append(event.record.offset)
    partition = deliveries[0].event.partition
    partition.assigned.complete_all(complete_offsets)
    partition.end(len(deliveries), size_bytes)


class OutboundRequest:
    """One delivery, or a batch of them.

    Attributes:
        deliveries: in the order in which they are sent.
        keys: to release once the request is finished.
        generation: of the order in which the queue has these keys.
        followed_by: the second half of a split batch, sent after this request.
        permit: of the circuit breaker.
    """

    __slots__ = ("_lease", "deliveries", "followed_by", "generation", "keys", "permit")

    def __init__(
        self,
        deliveries: list[Delivery],
        keys: Sequence[bytes],
        lease: PartitionLease,
        followed_by: "OutboundRequest | None" = None,
        generation: int = 0,
    ) -> None:
        self.deliveries = deliveries
        self.keys = keys
        self.generation = generation
        self.followed_by = followed_by
        self.permit = Permit.NORMAL
        self._lease = lease

    def may_send(self) -> bool:
        """Whether all its partitions certainly still belong to this instance."""
        return self._lease.held() and self.active

    @property
    def active(self) -> bool:
        """Whether none of its partitions is being revoked."""
        for delivery in self.deliveries:  # noqa: SIM110 - `all` makes a generator: this runs before each request
            if not delivery.event.partition.assigned.active:
                return False
        return True

    def records(self) -> list[ConsumerRecord]:
        """The record of each delivery."""
        return [delivery.event.record for delivery in self.deliveries]

    def count_attempt(self, started_s: float, started_us: int) -> None:
        """Count a request that was sent.

        Args:
            started_s: when it started, monotonic seconds.
            started_us: the same, microseconds since 1970 UTC.
        """
        for delivery in self.deliveries:
            delivery.attempts += 1
            delivery.local += 1
            if delivery.local == 1:
                delivery.pass_started_s = started_s
            if not delivery.started_us:
                delivery.started_us = started_us

    def discount_attempt(self) -> None:
        """Count a request as none of the attempts, since its deliveries are sent apart at once."""
        for delivery in self.deliveries:
            delivery.attempts = max(0, delivery.attempts - 1)  # a sender may have counted none

    def count_ambiguous(self) -> None:
        """Count a request that may have arrived although no answer came."""
        for delivery in self.deliveries:
            delivery.ambiguous += 1

    def split(self, first_count: int | None = None) -> "OutboundRequest":
        """The same deliveries as two requests, one after the other; returns the first.

        Args:
            first_count: number of deliveries of the first one; None: half of them.
        """
        first_count = len(self.deliveries) // 2 if first_count is None else first_count
        second_request = OutboundRequest(
            self.deliveries[first_count:], self.keys, self._lease, self.followed_by, self.generation
        )
        return OutboundRequest(self.deliveries[:first_count], (), self._lease, second_request)
