"""The records of `raw` for events of a source. Pure."""

from collections.abc import Sequence
from typing import Final

from hifi.delivery.ack_report import PartitionAcks
from hifi.pipe.revision import PipeRevision
from hifi.pipe.sources.event import SourceEvent
from hifi.record.event import BACKFILL, HOP, IDENTITY, Record, identity_prefix, position_header
from hifi.record.partitioner import partition_of
from hifi.runtime.clock import MICROSECONDS

_MINUTE_US: Final = 60 * MICROSECONDS
_ORIGIN: Final = b";" + BACKFILL


class RawRecords:
    """Records of one partition of `raw`, whose sequences follow each other."""

    def __init__(self, acks: PartitionAcks) -> None:
        """None yet; they get the next sequences of the partition."""
        self.acks = acks
        self.first_sequence = acks.next_sequence
        self.minutes: list[int] = []
        """That they count in."""
        self.records: list[Record] = []
        self._revision: PipeRevision | None = None
        self._accepted_us = self._minute = -1
        self._head = b""

    def add(
        self,
        event: SourceEvent,
        revision: PipeRevision,
        accepted_us: int,
        minute: int,
        hop: tuple[str, bytes],
        position: tuple[str, bytes],
    ) -> None:
        """Add the record of an event.

        Args:
            event: of the source.
            revision: of the pipe that it belongs to.
            accepted_us: its accepted time, microseconds since 1970 UTC.
            minute: that it counts in, minutes since 1970 UTC.
            hop: the header `hifi_hop`.
            position: the header `hifi_position`.
        """
        if minute != self._minute or accepted_us != self._accepted_us or revision is not self._revision:
            # Events that follow each other mostly share all of it.
            prefix = identity_prefix(revision.pipe.pipe, revision.number, revision.offset, accepted_us)
            self._head = b"%b%d;%016x:" % (prefix, minute, self.acks.epoch)
            self._minute, self._accepted_us, self._revision = minute, accepted_us, revision
        origin = _ORIGIN if event.backfill else b""
        identity = b"%b%d%b" % (self._head, self.first_sequence + len(self.records), origin)
        headers = [(IDENTITY, identity), hop, position, *event.headers]
        self.records.append(Record(event.key, event.data, headers))
        self.minutes.append(minute)


def raw_records(
    pipe: PipeRevision,
    events: Sequence[SourceEvent],
    accepted_us: Sequence[int],
    source: bytes,
    run: bytes,
    in_us: int,
    partitions: Sequence[PartitionAcks],
    tolerance_us: int,
) -> dict[int, RawRecords]:
    """The records of events, by partition of `raw`. The sequences of the partitions stay as they are.

    Args:
        pipe: that the events belong to.
        events: in the order of their positions.
        accepted_us: their accepted times, microseconds since 1970 UTC.
        source: name of the source partition.
        run: see `SourcePosition.run`.
        in_us: when they were read, microseconds since 1970 UTC.
        partitions: of `raw`.
        tolerance_us: see `minute_of`.
    """
    hop, count, rollout = (HOP, b"%d" % in_us), len(partitions), pipe.rollout
    by_partition: dict[int, RawRecords] = {}
    for event, at_us in zip(events, accepted_us, strict=True):
        key = event.key
        partition = partition_of(key, count)
        records = by_partition.get(partition)
        if records is None:
            records = by_partition[partition] = RawRecords(partitions[partition])
        revision = rollout.next if rollout is not None and rollout.gets(key) else pipe
        minute = minute_of(event.time_us, at_us, tolerance_us)
        position = position_header(run, event.position, source)
        records.add(event, revision, at_us, minute, hop, position)
    return by_partition


def minute_of(time_us: int | None, accepted_us: int, tolerance_us: int) -> int:
    """The minute that an event counts in: that of its own time, or of its accepted time if they differ too much.

    Args:
        time_us: the event's own time, microseconds since 1970 UTC; None: it has none.
        accepted_us: its accepted time, likewise.
        tolerance_us: the largest difference.
    """
    if time_us is not None and abs(time_us - accepted_us) <= tolerance_us:
        return time_us // _MINUTE_US
    return accepted_us // _MINUTE_US
