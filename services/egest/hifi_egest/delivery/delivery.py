"""A delivery: one event for one destination, on its way through egest."""

from enum import IntEnum
from typing import TYPE_CHECKING

from aiokafka import ConsumerRecord

from hifi.event import Headers
from hifi_egest.delivery.partition import Partition

if TYPE_CHECKING:
    from hifi_egest.lanes.lane import Lane


class Place(IntEnum):
    """Where a delivery is."""

    QUEUED = 0
    TAKEN = 1
    GONE = 2
    """Handed over or dropped while it was queued."""
    DECIDED = 3
    """Its outcome is being written."""


class Event:
    """A record that was read, shared by its deliveries.

    Attributes:
        record: as it was read.
        partition: where.
        identity: the headers of its receipts that are the same for all its deliveries.
        pipe: name of the pipe.
        seq: identity of the event.
        accepted_us: when ingest accepted it, microseconds since 1970 UTC.
        fetched_us: when egest fetched it, the same.
        left: deliveries without an outcome on record.
    """

    __slots__ = (
        "accepted_us",
        "fetched_us",
        "identity",
        "left",
        "partition",
        "pipe",
        "record",
        "seq",
        "size_bytes",
    )

    def __init__(
        self,
        record: ConsumerRecord,
        partition: Partition,
        identity: Headers,
        pipe: str,
        seq: bytes,
        accepted_us: int,
        fetched_us: int,
    ) -> None:
        self.record = record
        self.partition = partition
        self.identity = identity
        self.pipe = pipe
        self.seq = seq
        self.accepted_us = accepted_us
        self.fetched_us = fetched_us
        self.left = 0
        self.size_bytes = len(record.value or b"") + 1024  # headers, key and our own objects: about that

    def finished(self) -> None:
        """One of its deliveries has its outcome on record."""
        self.left -= 1
        if not self.left:
            self.partition.work.complete(self.record.offset)


class Delivery:
    """See the module.

    Attributes:
        destination: its name.
        lane: that it was given to; None as long as there is none.
        attempts: requests so far.
        first_us: when the first one was sent, microseconds since 1970 UTC; 0: there was none.
        passes: trips through the retrier.
        ambiguous: requests without an answer that may have arrived.
        local: requests in this pass.
        pass_began_s: when the first of these was sent, monotonic.
        queued_s: when it was queued, monotonic.
        leads: it is the one of its key that may be sent.
        breaker: what its receipt says of the destination's circuit breaker; empty: it was never open.
    """

    __slots__ = (
        "ambiguous", "attempts", "breaker", "destination", "event", "first_us", "key", "lane", "leads", "local",
        "pass_began_s", "passes", "place", "queued_s",
    )  # fmt: skip

    def __init__(
        self,
        event: Event,
        destination: bytes,
        attempts: int = 0,
        first_us: int = 0,
        passes: int = 0,
        ambiguous: int = 0,
    ) -> None:
        self.event = event
        self.destination = destination
        self.lane: Lane | None = None
        self.key: bytes | None = event.record.key
        self.attempts = attempts
        self.first_us = first_us
        self.passes = passes
        self.ambiguous = ambiguous
        self.local = 0
        self.pass_began_s = 0.0
        self.queued_s = 0.0
        self.place = Place.QUEUED
        self.leads = False
        self.breaker = b""
        event.partition.begin(event.size_bytes)

    def recorded(self) -> None:
        """Its outcome is on record."""
        self.event.finished()
        self._no_longer_in_hand()

    def left(self) -> None:
        """It is left to the partition's next owner."""
        self._no_longer_in_hand()

    def _no_longer_in_hand(self) -> None:
        if self.place is Place.DECIDED and self.lane is not None:
            self.lane.recorded()
        self.event.partition.end(self.event.size_bytes)
