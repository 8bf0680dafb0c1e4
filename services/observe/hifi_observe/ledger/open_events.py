"""Events of a partition without their outcome, in the order of `raw`: the watermark waits for them. Pure.

The identities of each range of `raw` are kept by pipe until all of them are settled at every destination. Settled means
that a record shows an outcome, so records of other topics may be read in any order: what was not read yet is open.
"""

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hifi_observe.ledger.event_times import NEVER_US, UNKNOWN_US, EventTimes
from hifi_observe.ledger.frontier import Frontier
from hifi_observe.ledger.holds import Holds
from hifi_observe.ledger.hops import FINAL
from hifi_observe.ledger.id_set import IdSet
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.record_batch import RecordGroup
from hifi_observe.ledger.stage import (
    ACCEPTED,
    ENRICHED,
    NORMALIZED,
    PARKED,
    RAW,
    RETRY_IN,
    RETRY_OUT,
    EventStage,
)

_RANGES: Final = 32
"""Ranges of a pipe that are kept apart; of more, old ones are joined: the watermark gets coarser, never wrong."""
_LATE_EVENTS: Final = 1000
"""Late events of a pipe that are kept."""
NORMALIZE: Final = "normalize"
ENRICH: Final = "enrich"
EGEST: Final = "egest"
INGEST: Final = "ingest"
WAITING: Final = "waiting"
PARKED_STATE: Final = "parked"
IN_FLIGHT: Final = (INGEST, NORMALIZE, ENRICH, EGEST)
"""Services that an event in flight waits for; `ingest` stands for events that are acknowledged, but not in `raw`."""
_OF_EVENT: Final = frozenset(("dead-event", "filtered", "duplicate"))
"""Kinds of stages that settle an event at every destination, if they name none or are of the whole event."""
_NO_IDS: Final = IdSet()


class LateEvent(NamedTuple):
    """An event that was accepted, but not acknowledged, before a time that had been published as settled."""

    appended_us: int
    """Append time in `raw`, microseconds since 1970 UTC."""
    accepted_us: int
    identity: str
    """`<epoch>:<sequence>`, as the field `hifi_seq`."""


@dataclass(slots=True)
class OpenAt:
    """Open events at one destination, and the times before which there are none."""

    settled_us: int
    """Everything that was acknowledged before this time is settled; 0: unknown."""
    first_pass_us: int
    """The same, but a delivery that was handed to the retrier counts as settled."""
    numbers: Counter[str] = field(default_factory=Counter)
    """Service that an event in flight waits for, `waiting` or `parked`, to events."""
    event_us: int = NEVER_US
    """No open event that is not late has an earlier event time; `UNKNOWN_US`: the time of one is not known."""
    late: int = 0
    """Open events that are late by their event time."""


class PipeMinuteStages:
    """The identity sets of a pipe minute, as the watermark asks for them."""

    __slots__ = (
        "_enriched_ids",
        "_final_ids",
        "_normalized_ids",
        "_pipe_minute",
        "_retries",
        "_wanted_ids",
        "names",
        "state",
    )

    def __init__(self, pipe_minute: PipeMinute) -> None:
        self._pipe_minute = pipe_minute
        self.state = _state_of(pipe_minute)
        """Of the minute, when this was made."""
        self._final_ids: defaultdict[str, list[IdSet]] = defaultdict(list)
        """Destination to the sets that settle events there; the empty name: at all."""
        self._wanted_ids: dict[str, IdSet] = {}
        self._retries: defaultdict[str, list[tuple[int, bool, IdSet]]] = defaultdict(list)
        """Destination to retry pass, whether the retrier has returned it, and the deliveries."""
        for stage, ids in pipe_minute.seen.items():
            kind, name = stage.kind, stage.destination
            if kind in _OF_EVENT and (kind == "dead-event" or not name):
                self._final_ids[""].append(ids)
            elif kind in FINAL:
                self._final_ids[name].append(ids)
            elif kind == "wanted":
                self._wanted_ids[name] = ids
            elif kind in (RETRY_IN, RETRY_OUT):
                self._retries[name].append((stage.retry_pass, kind == RETRY_OUT, ids))
        self._enriched_ids = pipe_minute.seen.get(EventStage(ENRICHED), _NO_IDS)
        self._normalized_ids = pipe_minute.seen.get(EventStage(NORMALIZED), _NO_IDS)
        self.names = frozenset(name for name in self._wanted_ids if name)
        """Destinations that events want."""

    def without_outcome(self, ids: IdSet, destination: str) -> IdSet:
        """The identities that are not settled at a destination."""
        open_ids = ids if self._pipe_minute.open else ids & self._pipe_minute.unresolved
        for settled_ids in (*self._final_ids[""], *self._final_ids[destination]):
            if not open_ids:
                return open_ids
            open_ids -= settled_ids
        enriched_ids = open_ids & self._enriched_ids
        return (
            open_ids - (enriched_ids - self._wanted_ids.get(destination, _NO_IDS))
            if enriched_ids
            else open_ids
        )

    def undecided(self, ids: IdSet) -> bool:
        """Whether any identity may be wanted at a destination that no record has named yet."""
        open_ids = ids if self._pipe_minute.open else ids & self._pipe_minute.unresolved
        open_ids = open_ids - self._enriched_ids
        for settled_ids in self._final_ids[""]:
            open_ids -= settled_ids
        return bool(open_ids)

    def count(self, open_ids: IdSet, destination: str) -> Counter[str]:
        """The number of open identities by service that they wait for, `waiting` and `parked`."""
        numbers: Counter[str] = Counter()
        for retry_pass, returned, ids in sorted(
            self._retries[destination], key=lambda retry: retry[:2], reverse=True
        ):
            retry_ids = open_ids & ids
            if not retry_ids:
                continue
            open_ids -= retry_ids
            if returned:
                numbers[EGEST] += len(retry_ids)
                continue
            parked_stage = EventStage(PARKED, destination, retry_pass)
            parked_count = len(retry_ids & self._pipe_minute.seen.get(parked_stage, _NO_IDS))
            numbers[PARKED_STATE] += parked_count
            numbers[WAITING] += len(retry_ids) - parked_count
        if open_ids:
            before_egest = open_ids - self._enriched_ids
            before_enrich = before_egest - self._normalized_ids
            numbers[EGEST] += len(open_ids) - len(before_egest)
            numbers[ENRICH] += len(before_egest) - len(before_enrich)
            numbers[NORMALIZE] += len(before_enrich)
        return +numbers

    def on_first_pass(self, open_ids: IdSet, destination: str) -> bool:
        """Whether any open identity was never handed to the retrier."""
        for _, _, ids in self._retries[destination]:
            open_ids -= ids
        return bool(open_ids)


class _OpenAtDestination(NamedTuple):
    """Open events of a share at a destination."""

    numbers: Counter[str]
    on_first_pass: bool
    """Whether any of it was never handed to the retrier."""
    late: int
    """Of it, late by event time."""
    in_time: bool
    """Whether any of it is not late."""


class _Share:
    """The events of one pipe minute in a range of `raw`."""

    __slots__ = ("_state", "counted", "event_us", "ids", "late", "settled")

    def __init__(self) -> None:
        self.ids = IdSet()
        self.event_us = NEVER_US
        """The lowest event time of those that are not late; `UNKNOWN_US`: it is not known."""
        self.late = IdSet()
        """Those that are late by their event time."""
        self.settled: set[str] = set()
        """Destinations at which all of them are settled."""
        self.counted: dict[str, _OpenAtDestination] = {}
        self._state = (-1, -1, -1)

    def keep_counts(self, state: tuple[int, int, int]) -> None:
        """Drop what was counted in another state of the pipe minute."""
        if state != self._state:
            self.counted.clear()
            self._state = state

    def add(self, epoch: str, sequences: list[int]) -> None:
        """Add events that are not known to be settled."""
        self.ids.add(epoch, sequences)
        self.settled.clear()
        self.counted.clear()

    def join(self, share: "_Share") -> None:
        """Take in another share of the same minute."""
        self.ids.update(share.ids)
        self.late.update(share.late)
        self.event_us = min(self.event_us, share.event_us)
        self.settled &= share.settled
        self.counted.clear()


class _RawRange:
    """Events of a pipe in a range of `raw`, none of which was acknowledged before a time."""

    __slots__ = ("shares", "since_us")

    def __init__(self, since_us: int) -> None:
        self.since_us = since_us
        self.shares: dict[PipeMinute, _Share] = {}

    def share(self, pipe_minute: PipeMinute) -> _Share:
        """The share of a minute, new if there is none."""
        share = self.shares.get(pipe_minute)
        if share is None:
            share = self.shares[pipe_minute] = _Share()
        return share

    def join(self, later_range: "_RawRange") -> None:
        """Take in the range that follows."""
        for pipe_minute, later_share in later_range.shares.items():
            earlier_share = self.shares.get(pipe_minute)
            if earlier_share is None:
                self.shares[pipe_minute] = later_share
            else:
                earlier_share.join(later_share)


class OpenEvents:
    """The open events of one partition, by pipe."""

    def __init__(self) -> None:
        self.frontier = Frontier()
        self.holds = Holds()
        self.published_us: dict[str, int] = {}
        """Pipe to the latest time that was published as settled at any destination."""
        self.late: defaultdict[str, deque[LateEvent]] = defaultdict(lambda: deque(maxlen=_LATE_EVENTS))
        """Pipe to its newest late events."""
        self.event_times = EventTimes()
        self._ranges: dict[str, deque[_RawRange]] = {}
        self._stages: dict[str, dict[PipeMinute, PipeMinuteStages]] = {}
        self._read_ranges: list[tuple[int, int]] = []
        self._reported_us: dict[PipeMinute, int] = {}
        """Pipe minutes that ack reports named events of, and the time of the newest end of `raw` then."""

    # Calls of the ledger

    def restore(self, pipe_minutes: Iterable[PipeMinute]) -> None:
        """Add what is open in closed minutes, after a restart. When it was acknowledged is unknown."""
        for pipe_minute in pipe_minutes:
            if pipe_minute.unresolved:
                share = self._last_range(pipe_minute.pipe, 0).share(pipe_minute)
                share.ids.update(pipe_minute.unresolved)
                share.event_us = UNKNOWN_US

    def begin(self, first_offset: int, stop_offset: int) -> None:
        """Read records of `raw` from an offset to before another."""
        self._read_ranges = self.frontier.ranges(first_offset, stop_offset)

    def add(self, pipe_minute: PipeMinute, group: RecordGroup) -> None:
        """Add events of `raw`, after `begin`."""
        start, offsets = 0, group.offsets
        for stop_offset, since_us in self._read_ranges:
            end = bisect_left(offsets, stop_offset, start)
            if end > start:
                share = self._last_range(pipe_minute.pipe, since_us).share(pipe_minute)
                share.add(group.epoch, group.sequences[start:end])
                self._note_times(share, pipe_minute, group, range(start, end), since_us)
                if group.times is not None:
                    self._note_late(pipe_minute.pipe, group, range(start, end), since_us)
            start = end

    def reported(self, pipe_minute: PipeMinute) -> None:
        """An ack report named events of a minute."""
        self._reported_us[pipe_minute] = self.frontier.asked_us

    def forget(self, pipe_minute: PipeMinute) -> None:
        """Give up what is still open in a minute that the ledger forgets."""
        self._reported_us.pop(pipe_minute, None)
        for raw_range in self._ranges.get(pipe_minute.pipe, ()):
            raw_range.shares.pop(pipe_minute, None)

    def note_end(self, asked_us: int, end: int, position: int) -> None:
        """See `Frontier.note`. After the clock was set back, it is unknown when open events were acknowledged."""
        if not self.frontier.note(asked_us, end, position):
            for ranges in self._ranges.values():
                for raw_range in ranges:
                    raw_range.since_us = 0

    def _last_range(self, pipe: str, since_us: int) -> _RawRange:
        ranges = self._ranges.get(pipe)
        if ranges is None:
            ranges = self._ranges[pipe] = deque()
        if ranges and ranges[-1].since_us == since_us:
            return ranges[-1]
        raw_range = _RawRange(since_us)
        ranges.append(raw_range)
        if len(ranges) > _RANGES:
            self._ranges[pipe] = _joined(ranges)
        return raw_range

    def _note_times(
        self, share: _Share, pipe_minute: PipeMinute, group: RecordGroup, indexes: range, since_us: int
    ) -> None:
        """Take in the event times of events that were added to a share."""
        epoch = group.epoch
        read_times = self.event_times.read(
            pipe_minute.pipe,
            group,
            indexes,
            since_us,
            lambda sequence: pipe_minute.has(RAW, epoch, sequence),
        )
        share.event_us = min(share.event_us, read_times.oldest_us)
        if read_times.late:
            share.late.add(epoch, read_times.late)

    def _note_late(self, pipe: str, group: RecordGroup, indexes: range, since_us: int) -> None:
        before_us = min(self.published_us.get(pipe, 0), since_us)
        times = group.times
        if times is None or min(times.accepted_us[indexes.start : indexes.stop]) >= before_us:
            return
        for index in indexes:
            if times.accepted_us[index] < before_us:
                identity = f"{group.epoch}:{group.sequences[index]}"
                self.late[pipe].append(
                    LateEvent(times.append_ms[index] * 1000, times.accepted_us[index], identity)
                )

    # Open events

    def missing(self) -> Counter[str]:
        """Pipe to events that an ack report names, but that are not in `raw`, although it was read far enough."""
        missing_counts: Counter[str] = Counter()
        for pipe_minute, asked_us in list(self._reported_us.items()):
            acknowledged_ids = pipe_minute.seen.get(EventStage(ACCEPTED), _NO_IDS)
            absent_ids = acknowledged_ids - pipe_minute.seen.get(EventStage(RAW), _NO_IDS)
            if not absent_ids:
                del self._reported_us[pipe_minute]
            elif self.frontier.reached_us > asked_us:
                missing_counts[pipe_minute.pipe] += len(absent_ids)
        return missing_counts

    def look(self, destinations: Callable[[str], Collection[str]]) -> dict[str, dict[str, OpenAt]]:
        """Pipe and destination to what is open there, of the pipes with any open event.

        Args:
            destinations: returns those that a pipe declares. Others that open events want are added.
        """
        missing_counts = self.missing()
        open_by_pipe = {}
        unfollowed_counts = self.holds.pipes
        for pipe in {*self._ranges, *missing_counts, *unfollowed_counts}:
            open_by_destination = self._look(pipe, destinations(pipe))
            held_count = missing_counts[pipe] + unfollowed_counts[pipe]
            if held_count:
                for name in {*open_by_destination, *destinations(pipe)}:
                    open_at = open_by_destination.setdefault(name, OpenAt(0, 0))
                    open_at.settled_us = open_at.first_pass_us = 0
                    open_at.event_us = UNKNOWN_US
                    open_at.numbers[INGEST] += held_count
            if open_by_destination:
                open_by_pipe[pipe] = open_by_destination
        return open_by_pipe

    def _look(self, pipe: str, declared_names: Collection[str]) -> dict[str, OpenAt]:
        ranges = self._ranges.get(pipe)
        if ranges is None:
            return {}
        stages = self._stages.get(pipe, {})
        stages = self._stages[pipe] = {
            pipe_minute: _up_to_date(stages.get(pipe_minute), pipe_minute)
            for pipe_minute in {pipe_minute for raw_range in ranges for pipe_minute in raw_range.shares}
        }
        names = set(declared_names).union(*(minute_stages.names for minute_stages in stages.values()))
        open_by_destination: dict[str, OpenAt] = {}
        for raw_range in ranges:
            _look_at_range(raw_range, stages, names, open_by_destination)
        open_ranges = deque(raw_range for raw_range in ranges if raw_range.shares)
        if open_ranges:
            self._ranges[pipe] = open_ranges
        else:
            del self._ranges[pipe], self._stages[pipe]
        reached_us = self.frontier.reached_us
        for open_at in open_by_destination.values():
            open_at.settled_us = min(open_at.settled_us, reached_us)
            open_at.first_pass_us = min(open_at.first_pass_us, reached_us)
        return open_by_destination


def _state_of(pipe_minute: PipeMinute) -> tuple[int, int, int]:
    """Changes when a record of the minute is read (offsets ascend), and when the minute is closed or amended."""
    return pipe_minute.version, len(pipe_minute.seen), sum(pipe_minute.lasts.values())


def _up_to_date(stages: PipeMinuteStages | None, pipe_minute: PipeMinute) -> PipeMinuteStages:
    """The stages of a minute, made anew if it has changed."""
    if stages is None or stages.state != _state_of(pipe_minute):
        return PipeMinuteStages(pipe_minute)
    return stages


def _look_at_range(
    raw_range: _RawRange,
    stages: Mapping[PipeMinute, PipeMinuteStages],
    names: Collection[str],
    open_by_destination: dict[str, OpenAt],
) -> None:
    """Add the open events of a range at some destinations, and drop the shares that are settled at all there can be."""
    for pipe_minute, share in list(raw_range.shares.items()):
        share.keep_counts(stages[pipe_minute].state)
        for name in names:
            if name not in share.settled:
                _look_at(share, stages[pipe_minute], name, raw_range.since_us, open_by_destination)
        if names and share.settled.issuperset(names) and not stages[pipe_minute].undecided(share.ids):
            del raw_range.shares[pipe_minute]


def _look_at(
    share: _Share, stages: PipeMinuteStages, name: str, since_us: int, open_by_destination: dict[str, OpenAt]
) -> None:
    """Add the open events of a share at a destination."""
    share_open = share.counted.get(name)
    if share_open is None:
        open_ids = stages.without_outcome(share.ids, name)
        if not open_ids:
            share.settled.add(name)
            return
        late_count = len(open_ids & share.late) if share.late else 0
        share_open = share.counted[name] = _OpenAtDestination(
            stages.count(open_ids, name),
            stages.on_first_pass(open_ids, name),
            late_count,
            late_count < len(open_ids),
        )
    open_at = open_by_destination.get(name)
    if open_at is None:
        open_at = open_by_destination[name] = OpenAt(since_us, NEVER_US)
    open_at.settled_us = min(open_at.settled_us, since_us)
    if share_open.on_first_pass:
        open_at.first_pass_us = min(open_at.first_pass_us, since_us)
    if share_open.in_time:
        open_at.event_us = min(open_at.event_us, share.event_us)
    open_at.late += share_open.late
    for state, number in share_open.numbers.items():
        open_at.numbers[state] += number


def _joined(ranges: deque[_RawRange]) -> deque[_RawRange]:
    """Ranges of which every two of the older half are joined."""
    joined_ranges: deque[_RawRange] = deque()
    old_count = len(ranges) // 2
    for index, raw_range in enumerate(ranges):
        if index < old_count and index % 2:
            joined_ranges[-1].join(raw_range)
        else:
            joined_ranges.append(raw_range)
    return joined_ranges
