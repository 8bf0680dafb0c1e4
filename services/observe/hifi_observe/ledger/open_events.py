"""Events of a partition without their outcome, in the order of `raw`: what the watermark waits for. Pure.

The identities of each piece of `raw` are kept by pipe until all of them are settled at every destination. Settled means
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

_PIECES: Final = 32
"""Pieces of a pipe that are kept apart; of more, old ones are joined: the watermark gets coarser, never wrong."""
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
    """What is open at one destination."""

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

    __slots__ = ("_enriched", "_final", "_minute", "_normalized", "_retries", "_wanted", "names", "state")

    def __init__(self, pipe_minute: PipeMinute) -> None:
        self._minute = pipe_minute
        self.state = _state_of(pipe_minute)
        """Of the minute, when this was made."""
        self._final: defaultdict[str, list[IdSet]] = defaultdict(list)
        """Destination to the sets that settle events there; the empty name: at all."""
        self._wanted: dict[str, IdSet] = {}
        self._retries: defaultdict[str, list[tuple[int, bool, IdSet]]] = defaultdict(list)
        """Destination to retry pass, whether the retrier has returned it, and the deliveries."""
        for stage, ids in pipe_minute.seen.items():
            kind, name = stage.kind, stage.destination
            if kind in _OF_EVENT and (kind == "dead-event" or not name):
                self._final[""].append(ids)
            elif kind in FINAL:
                self._final[name].append(ids)
            elif kind == "wanted":
                self._wanted[name] = ids
            elif kind in (RETRY_IN, RETRY_OUT):
                self._retries[name].append((stage.retry_pass, kind == RETRY_OUT, ids))
        self._enriched = pipe_minute.seen.get(EventStage(ENRICHED), _NO_IDS)
        self._normalized = pipe_minute.seen.get(EventStage(NORMALIZED), _NO_IDS)
        self.names = frozenset(name for name in self._wanted if name)
        """Destinations that events want."""

    def without_outcome(self, ids: IdSet, destination: str) -> IdSet:
        """Those of some identities that are not settled at a destination."""
        left = ids if self._minute.open else ids & self._minute.unresolved
        for settled in (*self._final[""], *self._final[destination]):
            if not left:
                return left
            left -= settled
        unwanted = left & self._enriched
        return left - (unwanted - self._wanted.get(destination, _NO_IDS)) if unwanted else left

    def undecided(self, ids: IdSet) -> bool:
        """Whether any of some identities may be wanted at a destination that no record has named yet."""
        left = ids if self._minute.open else ids & self._minute.unresolved
        left = left - self._enriched
        for settled in self._final[""]:
            left -= settled
        return bool(left)

    def count(self, left: IdSet, destination: str) -> Counter[str]:
        """Where open identities are: by service that they wait for, `waiting` and `parked`."""
        numbers: Counter[str] = Counter()
        for retry_pass, returned, ids in sorted(
            self._retries[destination], key=lambda retry: retry[:2], reverse=True
        ):
            there = left & ids
            if not there:
                continue
            left -= there
            if returned:
                numbers[EGEST] += len(there)
                continue
            parked_stage = EventStage(PARKED, destination, retry_pass)
            parked = len(there & self._minute.seen.get(parked_stage, _NO_IDS))
            numbers[PARKED_STATE] += parked
            numbers[WAITING] += len(there) - parked
        if left:
            before_egest = left - self._enriched
            before_enrich = before_egest - self._normalized
            numbers[EGEST] += len(left) - len(before_egest)
            numbers[ENRICH] += len(before_egest) - len(before_enrich)
            numbers[NORMALIZE] += len(before_enrich)
        return +numbers

    def on_first_pass(self, left: IdSet, destination: str) -> bool:
        """Whether any open identity was never handed to the retrier."""
        for _, _, ids in self._retries[destination]:
            left -= ids
        return bool(left)


class _OpenAtDestination(NamedTuple):
    """What a share has open at a destination."""

    numbers: Counter[str]
    on_first_pass: bool
    """Whether any of it was never handed to the retrier."""
    late: int
    """Of it, late by event time."""
    in_time: bool
    """Whether any of it is not late."""


class _Share:
    """The events of one pipe minute in a piece of `raw`."""

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

    def keep_counts(self, of_state: tuple[int, int, int]) -> None:
        """Drop what was counted in another state of the pipe minute."""
        if of_state != self._state:
            self.counted.clear()
            self._state = of_state

    def add(self, epoch: str, sequences: list[int]) -> None:
        """Add events that are not known to be settled."""
        self.ids.add(epoch, sequences)
        self.settled.clear()
        self.counted.clear()

    def join(self, other: "_Share") -> None:
        """Take in another one of the same minute."""
        self.ids.update(other.ids)
        self.late.update(other.late)
        self.event_us = min(self.event_us, other.event_us)
        self.settled &= other.settled
        self.counted.clear()


class _Piece:
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

    def join(self, later: "_Piece") -> None:
        """Take in the piece that follows."""
        for pipe_minute, share in later.shares.items():
            mine = self.shares.get(pipe_minute)
            if mine is None:
                self.shares[pipe_minute] = share
            else:
                mine.join(share)


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
        self._pieces: dict[str, deque[_Piece]] = {}
        self._stages: dict[str, dict[PipeMinute, PipeMinuteStages]] = {}
        self._reading: list[tuple[int, int]] = []
        self._reported: dict[PipeMinute, int] = {}
        """Pipe minutes that ack reports named events of, and the time of the newest end of `raw` then."""

    # What the ledger tells

    def restore(self, pipe_minutes: Iterable[PipeMinute]) -> None:
        """Add what is open in closed minutes, after a restart. When it was acknowledged is unknown."""
        for pipe_minute in pipe_minutes:
            if pipe_minute.unresolved:
                share = self._last_piece(pipe_minute.pipe, 0).share(pipe_minute)
                share.ids.update(pipe_minute.unresolved)
                share.event_us = UNKNOWN_US

    def begin(self, first: int, stop: int) -> None:
        """Read records of `raw` from an offset to before another."""
        self._reading = self.frontier.pieces(first, stop)

    def add(self, pipe_minute: PipeMinute, group: RecordGroup) -> None:
        """Add events of `raw`, after `begin`."""
        start, offsets = 0, group.offsets
        for stop_offset, since_us in self._reading:
            stop = bisect_left(offsets, stop_offset, start)
            if stop > start:
                share = self._last_piece(pipe_minute.pipe, since_us).share(pipe_minute)
                share.add(group.epoch, group.sequences[start:stop])
                self._note_times(share, pipe_minute, group, range(start, stop), since_us)
                if group.times is not None:
                    self._note_late(pipe_minute.pipe, group, range(start, stop), since_us)
            start = stop

    def reported(self, pipe_minute: PipeMinute) -> None:
        """An ack report named events of a minute."""
        self._reported[pipe_minute] = self.frontier.asked_us

    def forget(self, pipe_minute: PipeMinute) -> None:
        """Give up what is still open in a minute that the ledger forgets."""
        self._reported.pop(pipe_minute, None)
        for piece in self._pieces.get(pipe_minute.pipe, ()):
            piece.shares.pop(pipe_minute, None)

    def note_end(self, asked_us: int, end: int, position: int) -> None:
        """See `Frontier.note`. After the clock was set back, it is unknown when open events were acknowledged."""
        if not self.frontier.note(asked_us, end, position):
            for pieces in self._pieces.values():
                for piece in pieces:
                    piece.since_us = 0

    def _last_piece(self, pipe: str, since_us: int) -> _Piece:
        pieces = self._pieces.get(pipe)
        if pieces is None:
            pieces = self._pieces[pipe] = deque()
        if pieces and pieces[-1].since_us == since_us:
            return pieces[-1]
        piece = _Piece(since_us)
        pieces.append(piece)
        if len(pieces) > _PIECES:
            self._pieces[pipe] = _joined(pieces)
        return piece

    def _note_times(
        self, share: _Share, pipe_minute: PipeMinute, group: RecordGroup, indexes: range, since_us: int
    ) -> None:
        """Take in the event times of events that were added to a share."""
        epoch = group.epoch
        read = self.event_times.read(
            pipe_minute.pipe,
            group,
            indexes,
            since_us,
            lambda sequence: pipe_minute.has(RAW, epoch, sequence),
        )
        share.event_us = min(share.event_us, read.oldest_us)
        if read.late:
            share.late.add(epoch, read.late)

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

    # What is open

    def missing(self) -> Counter[str]:
        """Pipe to events that an ack report names, but that are not in `raw`, although it was read far enough."""
        missing: Counter[str] = Counter()
        for pipe_minute, asked_us in list(self._reported.items()):
            named = pipe_minute.seen.get(EventStage(ACCEPTED), _NO_IDS)
            absent = named - pipe_minute.seen.get(EventStage(RAW), _NO_IDS)
            if not absent:
                del self._reported[pipe_minute]
            elif self.frontier.reached_us > asked_us:
                missing[pipe_minute.pipe] += len(absent)
        return missing

    def look(self, destinations: Callable[[str], Collection[str]]) -> dict[str, dict[str, OpenAt]]:
        """Pipe and destination to what is open there, of the pipes with any open event.

        Args:
            destinations: returns those that a pipe declares. Others that open events want are added.
        """
        missing = self.missing()
        looks = {}
        unfollowed = self.holds.pipes
        for pipe in {*self._pieces, *missing, *unfollowed}:
            opens = self._look(pipe, destinations(pipe))
            held = missing[pipe] + unfollowed[pipe]
            if held:
                for name in {*opens, *destinations(pipe)}:
                    open_at = opens.setdefault(name, OpenAt(0, 0))
                    open_at.settled_us = open_at.first_pass_us = 0
                    open_at.event_us = UNKNOWN_US
                    open_at.numbers[INGEST] += held
            if opens:
                looks[pipe] = opens
        return looks

    def _look(self, pipe: str, declared: Collection[str]) -> dict[str, OpenAt]:
        pieces = self._pieces.get(pipe)
        if pieces is None:
            return {}
        stages = self._stages.get(pipe, {})
        stages = self._stages[pipe] = {
            pipe_minute: _up_to_date(stages.get(pipe_minute), pipe_minute)
            for pipe_minute in {pipe_minute for piece in pieces for pipe_minute in piece.shares}
        }
        names = set(declared).union(*(of_minute.names for of_minute in stages.values()))
        opens: dict[str, OpenAt] = {}
        for piece in pieces:
            _look_at_piece(piece, stages, names, opens)
        left = deque(piece for piece in pieces if piece.shares)
        if left:
            self._pieces[pipe] = left
        else:
            del self._pieces[pipe], self._stages[pipe]
        reached_us = self.frontier.reached_us
        for open_at in opens.values():
            open_at.settled_us = min(open_at.settled_us, reached_us)
            open_at.first_pass_us = min(open_at.first_pass_us, reached_us)
        return opens


def _state_of(pipe_minute: PipeMinute) -> tuple[int, int, int]:
    """Changes when a record of the minute is read (offsets ascend), and when the minute is closed or amended."""
    return pipe_minute.version, len(pipe_minute.seen), sum(pipe_minute.lasts.values())


def _up_to_date(stages: PipeMinuteStages | None, pipe_minute: PipeMinute) -> PipeMinuteStages:
    """The stages of a minute, made anew if it has changed."""
    if stages is None or stages.state != _state_of(pipe_minute):
        return PipeMinuteStages(pipe_minute)
    return stages


def _look_at_piece(
    piece: _Piece,
    stages: Mapping[PipeMinute, PipeMinuteStages],
    names: Collection[str],
    opens: dict[str, OpenAt],
) -> None:
    """Add what a piece has open at some destinations, and drop the shares that are settled at all there can be."""
    for pipe_minute, share in list(piece.shares.items()):
        share.keep_counts(stages[pipe_minute].state)
        for name in names:
            if name not in share.settled:
                _look_at(share, stages[pipe_minute], name, piece.since_us, opens)
        if names and share.settled.issuperset(names) and not stages[pipe_minute].undecided(share.ids):
            del piece.shares[pipe_minute]


def _look_at(
    share: _Share, stages: PipeMinuteStages, name: str, since_us: int, opens: dict[str, OpenAt]
) -> None:
    """Add what a share has open at a destination."""
    counted = share.counted.get(name)
    if counted is None:
        left = stages.without_outcome(share.ids, name)
        if not left:
            share.settled.add(name)
            return
        late = len(left & share.late) if share.late else 0
        counted = share.counted[name] = _OpenAtDestination(
            stages.count(left, name), stages.on_first_pass(left, name), late, late < len(left)
        )
    open_at = opens.get(name)
    if open_at is None:
        open_at = opens[name] = OpenAt(since_us, NEVER_US)
    open_at.settled_us = min(open_at.settled_us, since_us)
    if counted.on_first_pass:
        open_at.first_pass_us = min(open_at.first_pass_us, since_us)
    if counted.in_time:
        open_at.event_us = min(open_at.event_us, share.event_us)
    open_at.late += counted.late
    for where, number in counted.numbers.items():
        open_at.numbers[where] += number


def _joined(pieces: deque[_Piece]) -> deque[_Piece]:
    """Pieces of which every two of the older half are joined."""
    joined: deque[_Piece] = deque()
    old = len(pieces) // 2
    for index, piece in enumerate(pieces):
        if index < old and index % 2:
            joined[-1].join(piece)
        else:
            joined.append(piece)
    return joined
