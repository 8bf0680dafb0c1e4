"""An event as it was read from `enriched` or `retry-out`, shared by its deliveries."""

from typing import Final, NamedTuple

from aiokafka import ConsumerRecord

from hifi.record.headers import Headers
from hifi_egest.delivery.partition import SourcePartition

_OVERHEAD_BYTES: Final = 1024
"""Estimated memory of a delivery's headers, key and Python objects."""


class EarlierAttempts(NamedTuple):
    """What a record of `retry-out` says of the earlier passes of its delivery.

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
        key, log, log_offset: what identifies its copies; see hifi_egest.dedup.copy_key.
        destinations: names of the destinations whose delivery has not been given to a lane yet; b"": none wants it.
        pending: deliveries without a recorded outcome.
        size_bytes: estimated size of one delivery in memory.
    """

    __slots__ = (
        "accepted_us", "copied", "destinations", "due_us", "earlier", "fetched_us", "key", "log", "log_offset",
        "partition", "pending", "pipe", "receipt_hop", "record", "revision_offset", "seq", "size_bytes",
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
        self.size_bytes = len(record.value or b"") + _OVERHEAD_BYTES

    def delivery_completed(self) -> None:
        """Count a delivery whose outcome is recorded; the last one completes the record's offset."""
        self.pending -= 1
        if not self.pending:
            self.partition.assigned.complete(self.record.offset)
