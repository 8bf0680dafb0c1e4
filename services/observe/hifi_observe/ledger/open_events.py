"""Events of a partition without their outcome, in the order of `raw`: the watermark waits for them. Pure.

The identities of each piece of `raw` are kept by pipe until all of them are settled at every destination. Settled means
that a record shows an outcome, so records of other topics may be read in any order: what was not read yet is open.
"""

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from hifi_observe.ledger.event_times import UNKNOWN_US, EventTimes
from hifi_observe.ledger.frontier import Frontier
from hifi_observe.ledger.holds import Holds
from hifi_observe.ledger.id_set import IdSet
from hifi_observe.ledger.open_pieces import OpenAt, Piece, Share, StagesOfMinutes
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.pipe_minute_stages import INGEST
from hifi_observe.ledger.record_batch import RecordGroup
from hifi_observe.ledger.stage import ACCEPTED, RAW, EventStage

_PIECES: Final = 32
"""Pieces of a pipe that are kept apart; of more, old ones are joined: the watermark gets coarser, never wrong."""
_LATE_EVENTS: Final = 1000
"""Late events of a pipe that are kept."""
_NO_IDS: Final = IdSet()


class LateEvent(NamedTuple):
    """An event that was accepted, but not acknowledged, before a time that had been published as settled."""

    appended_us: int
    """Append time in `raw`, microseconds since 1970 UTC."""
    accepted_us: int
    identity: str
    """`<epoch>:<sequence>`, as the field `hifi_seq`."""


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
        self._pieces: dict[str, deque[Piece]] = {}
        self._read_pieces: list[tuple[int, int]] = []
        self._reported_us: dict[PipeMinute, int] = {}
        """Pipe minutes that ack reports named events of, and the time of the newest end of `raw` then."""

    # Calls of the ledger

    def restore(self, pipe_minutes: Iterable[PipeMinute]) -> None:
        """Add what is open in closed minutes, after a restart. When it was acknowledged is unknown."""
        for pipe_minute in pipe_minutes:
            if pipe_minute.unresolved:
                share = self._last_piece(pipe_minute.pipe, 0).share_to_change(pipe_minute)
                share.ids.update(pipe_minute.unresolved)
                share.event_us = UNKNOWN_US

    def begin(self, first_offset: int, stop_offset: int) -> None:
        """Read records of `raw` from an offset to before another."""
        self._read_pieces = self.frontier.pieces(first_offset, stop_offset)

    def add(self, pipe_minute: PipeMinute, group: RecordGroup) -> None:
        """Add events of `raw`, after `begin`."""
        start, offsets = 0, group.offsets
        for stop_offset, since_us in self._read_pieces:
            end = bisect_left(offsets, stop_offset, start)
            if end > start:
                share = self._last_piece(pipe_minute.pipe, since_us).share_to_change(pipe_minute)
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
        for piece in self._pieces.get(pipe_minute.pipe, ()):
            piece.remove(pipe_minute)

    def note_end(self, asked_us: int, end: int, position: int) -> None:
        """See `Frontier.note`. After the clock was set back, it is unknown when open events were acknowledged."""
        if not self.frontier.note(asked_us, end, position):
            for pieces in self._pieces.values():
                for piece in pieces:
                    piece.since_us = 0

    def _last_piece(self, pipe: str, since_us: int) -> Piece:
        pieces = self._pieces.get(pipe)
        if pieces is None:
            pieces = self._pieces[pipe] = deque()
        if pieces and pieces[-1].since_us == since_us:
            return pieces[-1]
        piece = Piece(since_us)
        pieces.append(piece)
        if len(pieces) > _PIECES:
            self._pieces[pipe] = _joined(pieces)
        return piece

    def _note_times(
        self, share: Share, pipe_minute: PipeMinute, group: RecordGroup, indexes: range, since_us: int
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
        for pipe in {*self._pieces, *missing_counts, *unfollowed_counts}:
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
        pieces = self._pieces.get(pipe)
        if pieces is None:
            return {}
        destination_names = frozenset(declared_names).union(*[piece.refresh() for piece in pieces])
        stages = StagesOfMinutes()
        open_by_destination: dict[str, OpenAt] = {}
        for piece in pieces:
            piece.look(destination_names, stages, open_by_destination)
        open_pieces = deque(piece for piece in pieces if piece)
        if open_pieces:
            self._pieces[pipe] = open_pieces
        else:
            del self._pieces[pipe]
        reached_us = self.frontier.reached_us
        for open_at in open_by_destination.values():
            open_at.settled_us = min(open_at.settled_us, reached_us)
            open_at.first_pass_us = min(open_at.first_pass_us, reached_us)
        return open_by_destination


def _joined(pieces: deque[Piece]) -> deque[Piece]:
    """Pieces of which every two of the older half are joined."""
    joined_pieces: deque[Piece] = deque()
    old_count = len(pieces) // 2
    for index, piece in enumerate(pieces):
        if index < old_count and index % 2:
            joined_pieces[-1].join(piece)
        else:
            joined_pieces.append(piece)
    return joined_pieces
