"""A delivery: one event for one destination."""

from collections.abc import Sequence
from enum import IntEnum

from hifi.delivery.attempt import Attempt
from hifi_egest.delivery.event_record import NO_EARLIER_ATTEMPTS, EarlierAttempts, EventRecord
from hifi_egest.delivery.lane_room import LaneRoom


class DeliveryState(IntEnum):
    """Where a delivery is in egest."""

    QUEUED = 0
    TAKEN = 1
    """It is part of an outbound request."""
    REMOVED = 2
    """It was handed over or dropped while it was queued."""
    DECIDED = 3
    """Its outcome is being written."""


NO_ATTEMPT = Attempt()
"""The outcome was decided without a request."""


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
    complete: list[int] = []
    for delivery in deliveries:
        event = delivery.event
        size_bytes += event.size_bytes
        if delivery.room is not None:
            delivery.room.unrecorded -= 1
        event.pending -= 1
        if not event.pending:
            complete.append(event.record.offset)
    partition = deliveries[0].event.partition
    partition.assigned.complete_all(complete)
    partition.end(len(deliveries), size_bytes)
