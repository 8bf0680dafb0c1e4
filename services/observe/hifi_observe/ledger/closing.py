"""Close minutes: when a minute may close, and what its closing finds.

A minute closes at an offset snapshot, which is read in this order: the end of `accepted`, then the services' committed
offsets, last the end offsets of all topics. Services acknowledge outputs before they commit, and ingest acknowledges
before it writes its ack report. So once observe has read every topic up to these ends, it has read every successor of
every record below the committed offsets, and every record that an earlier ack report names. An event without a
successor is lost; no clock takes part in that decision.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from hifi_observe.ledger import hops
from hifi_observe.ledger.id_set import union
from hifi_observe.ledger.ingest_activity import IngestActivity
from hifi_observe.ledger.pipe_minute import Count, PipeMinute


@dataclass(frozen=True, slots=True)
class ClosingRules:
    """When minutes close and for how long they are amended, seconds after the end of a minute."""

    settle_s: float = 300
    """Delay between the end of a minute and its closing."""
    amend_s: float = 3600
    """For this long any late arrival amends a minute; unresolved events are followed for longer."""
    follow_s: float = 7 * 86400
    """For this long lost events are followed, and hold the watermark."""
    hold_s: float = 31 * 86400
    """For this long events in flight, waiting or parked are followed: longer than any topic keeps a record of them."""

    def newest_closable(self, taken_us: int) -> int:
        """The newest minute whose closing delay is over at a time (microseconds), in minutes since 1970 UTC."""
        return int((taken_us - self.settle_s * 1_000_000) // 60_000_000) - 1

    def forgettable(self, pipe_minute: PipeMinute, now_us: int) -> bool:
        """Whether a minute can be dropped: it is closed, published and too old to be amended or followed."""
        if pipe_minute.open or pipe_minute.dirty:
            return False
        age_s = now_us / 1_000_000 - (pipe_minute.minute + 1) * 60
        if pipe_minute.unresolved:
            return age_s > self.followed_s(may_end=pipe_minute.may_end)
        return age_s > min(self.follow_s, self.amend_s + self.settle_s)

    def followed_s(self, *, may_end: bool) -> float:
        """For how long a minute with unresolved events is followed, seconds after its end.

        Args:
            may_end: whether any of them is not lost.
        """
        return max(self.follow_s, self.hold_s) if may_end else self.follow_s


@dataclass(frozen=True, slots=True)
class LakeRead:
    """The offset and the destinations of the service lake, which reads `enriched` as egest does."""

    committed: int
    """Its committed offset; 0: none yet."""
    destinations: frozenset[tuple[str, str]]
    """Pipe and name of the destinations that it delivers to."""


@dataclass(frozen=True, slots=True)
class OffsetSnapshot:
    """Kafka's offsets for one partition number, read in the order of the fields."""

    taken_us: int
    """Wall time before the first request, microseconds since 1970 UTC."""
    ack_reports_end: int
    """End offset of `accepted`."""
    committed: Mapping[str, int]
    """Topic to the committed offset of the service that reads it."""
    ends: Mapping[str, int]
    """Topic to its end offset."""
    lake: LakeRead | None = None
    """Of the service lake; None: no pipe has a table."""
    parked_first: int = 0
    """The first offset of `parked` that Kafka still has: what was parked before is deleted."""

    def reached(self, positions: Mapping[str, int]) -> bool:
        """Whether every topic was read up to the ends."""
        return all(positions.get(topic, 0) >= end for topic, end in self.ends.items())

    def short_topics(self, positions: Mapping[str, int]) -> list[str]:
        """Topics that end before what had been read of them when the snapshot was begun."""
        return [topic for topic, end in self.ends.items() if end < positions.get(topic, 0)]


@dataclass(slots=True)
class MinuteResult:
    """A closed or amended minute of one pipe on this partition."""

    pipe_minute: PipeMinute
    counts: Counter[Count]
    unresolved: list[hops.Unresolved]
    unacknowledged: int = 0
    """Events in `raw` that no ack report names, although their epoch sent later ones."""
    ack_report_incomplete: int = 0
    """Events in `raw` whose epoch ended without its closing ack report."""


def inspect_minute(
    pipe_minute: PipeMinute, pending: hops.Pending, lake: hops.LakeDestinations
) -> MinuteResult:
    """The state of a minute as it is now, without closing it; losses are final only if the minute is closed."""
    counts = pipe_minute.frozen + hops.counts(pipe_minute)
    return MinuteResult(pipe_minute, counts, hops.unresolved(pipe_minute, pending, lake))


def close_minute(
    pipe_minute: PipeMinute,
    pending: hops.Pending,
    ingest: IngestActivity,
    counted_offsets: Mapping[str, int],
    lake: hops.LakeDestinations = frozenset(),
) -> MinuteResult:
    """Close a minute, or amend a closed one: freeze its counts and keep only the unresolved identities.

    Args:
        pipe_minute: to close.
        pending: identities whose records the reading service has not committed past.
        ingest: ack reports of the partition.
        counted_offsets: topic to the next offset that is not counted yet.
        lake: pipe and name of the destinations that the service lake delivers to.
    """
    unresolved = hops.unresolved(pipe_minute, pending, lake)
    counts_now = hops.counts(pipe_minute)
    minute_result = MinuteResult(pipe_minute, pipe_minute.frozen + counts_now, unresolved)
    if pipe_minute.open:
        pipe_minute.unreported = ingest.unreported(pipe_minute)
    minute_result.unacknowledged, minute_result.ack_report_incomplete = pipe_minute.unreported
    kept_ids = union([*(group.ids for group in unresolved), hops.unread(pipe_minute)])
    pipe_minute.close(counts_now, kept_ids, counted_offsets)
    pipe_minute.may_end = any(group.state != "lost" for group in unresolved)
    pipe_minute.frozen.subtract(hops.counts(pipe_minute))
    return minute_result
