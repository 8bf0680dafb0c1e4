"""The records of `raw` for events of a source. Pure."""

from collections.abc import Sequence
from typing import Final

from hifi.delivery.ack_report import PartitionAcks
from hifi.pipe.revision import PipeRevision
from hifi.pipe.sources.event import SourceEvent
from hifi.record.hop import write_first_hop
from hifi.record.identity import identity_prefix
from hifi.record.partitioner import partition_of
from hifi.record.raw_record import RawRecords
from hifi.record.source_position import position_header
from hifi.runtime.clock import MICROSECONDS

_MINUTE_US: Final = 60 * MICROSECONDS


def raw_records(
    pipe: PipeRevision,
    events: Sequence[SourceEvent],
    accepted_us: Sequence[int],
    source: bytes,
    reader_run: bytes,
    in_us: int,
    partitions: Sequence[PartitionAcks],
    tolerance_us: int,
) -> dict[int, RawRecords]:
    """The records of events, by partition of `raw`. The sequences of the partitions do not change.

    Args:
        pipe: that the events belong to.
        events: in the order of their positions.
        accepted_us: their accepted times, microseconds since 1970 UTC.
        source: name of the source partition.
        reader_run: see `SourcePosition.run`.
        in_us: time at which the events were read, microseconds since 1970 UTC.
        partitions: of `raw`.
        tolerance_us: see `minute_of`.
    """
    hop, partition_count, rollout = write_first_hop(in_us), len(partitions), pipe.rollout
    records_by_partition: dict[int, RawRecords] = {}
    prefix = next_prefix = b""
    prefix_us = -1
    for event, event_accepted_us in zip(events, accepted_us, strict=True):
        key = event.key
        partition = partition_of(key, partition_count)
        records = records_by_partition.get(partition)
        if records is None:
            acks = partitions[partition]
            records = records_by_partition[partition] = RawRecords(acks.epoch, acks.next_sequence)
        if event_accepted_us != prefix_us:  # events that follow each other were mostly accepted together
            prefix_us, prefix = event_accepted_us, _prefix(pipe, event_accepted_us)
            next_prefix = b"" if rollout is None else _prefix(rollout.next, event_accepted_us)
        records.add(
            key,
            event.data,
            event.headers,
            prefix if rollout is None or not rollout.gets(key) else next_prefix,
            minute_of(event.time_us, event_accepted_us, tolerance_us),
            hop,
            position_header(reader_run, event.position, source),
            event.backfill,
        )
    return records_by_partition


def _prefix(revision: PipeRevision, accepted_us: int) -> bytes:
    return identity_prefix(revision.pipe.pipe, revision.number, revision.offset, accepted_us)


def minute_of(time_us: int | None, accepted_us: int, tolerance_us: int) -> int:
    """The minute in which an event counts: of its own time, or of its accepted time if they differ too much.

    Args:
        time_us: the event's own time, microseconds since 1970 UTC; None: it has none.
        accepted_us: its accepted time, likewise.
        tolerance_us: the largest difference.
    """
    if time_us is not None and abs(time_us - accepted_us) <= tolerance_us:
        return time_us // _MINUTE_US
    return accepted_us // _MINUTE_US
