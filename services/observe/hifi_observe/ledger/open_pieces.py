"""Pieces of `raw` with the events that are open in them. Pure.

Open events are counted each second, and a destination that is parked for a month leaves tens of thousands of minutes
open. So a piece keeps its minutes in blocks, and a block is counted again only if one of its minutes has changed.
"""

from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hifi_observe.ledger.event_times import NEVER_US
from hifi_observe.ledger.id_set import IdSet
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.pipe_minute_stages import PipeMinuteStages, wanted_destinations

_BLOCK_MINUTES: Final = 128


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


class StagesOfMinutes(dict[PipeMinute, PipeMinuteStages]):
    """The stages of pipe minutes, each made when it is asked for; valid until a record is read."""

    def __missing__(self, pipe_minute: PipeMinute) -> PipeMinuteStages:
        stages = self[pipe_minute] = PipeMinuteStages(pipe_minute)
        return stages


class _OpenOfMinute(NamedTuple):
    """Open events of a share at a destination."""

    numbers: Counter[str]
    on_first_pass: bool
    """Whether any of it was never handed to the retrier."""
    late: int
    """Of it, late by event time."""
    in_time: bool
    """Whether any of it is not late."""


class _OpenOfBlock:
    """Open events of the shares of a block at a destination."""

    __slots__ = ("event_us", "late", "numbers", "on_first_pass")

    def __init__(self) -> None:
        self.numbers: Counter[str] = Counter()
        self.on_first_pass = False
        self.event_us = NEVER_US
        """The lowest event time of those that are not late."""
        self.late = 0

    def add(self, open_of_minute: _OpenOfMinute, event_us: int) -> None:
        """Add the open events of a share with this lowest event time."""
        self.numbers.update(open_of_minute.numbers)
        self.on_first_pass = self.on_first_pass or open_of_minute.on_first_pass
        if open_of_minute.in_time:
            self.event_us = min(self.event_us, event_us)
        self.late += open_of_minute.late

    def add_to(self, open_at: OpenAt, since_us: int) -> None:
        """Add these to the open events at the destination; none was acknowledged before a time."""
        open_at.settled_us = min(open_at.settled_us, since_us)
        if self.on_first_pass:
            open_at.first_pass_us = min(open_at.first_pass_us, since_us)
        open_at.event_us = min(open_at.event_us, self.event_us)
        open_at.late += self.late
        open_at.numbers.update(self.numbers)


class Share:
    """The events of one pipe minute in a piece."""

    __slots__ = ("_changes", "counted", "event_us", "ids", "late", "settled")

    def __init__(self) -> None:
        self.ids = IdSet()
        self.event_us = NEVER_US
        """The lowest event time of those that are not late; `UNKNOWN_US`: it is not known."""
        self.late = IdSet()
        """Those that are late by their event time."""
        self.settled: set[str] = set()
        """Destinations at which all of them are settled."""
        self.counted: dict[str, _OpenOfMinute] = {}
        self._changes = -1

    def keep_counts(self, changes: int) -> None:
        """Drop what was counted after another number of changes of the pipe minute."""
        if changes != self._changes:
            self.counted.clear()
            self._changes = changes

    def add(self, epoch: str, sequences: list[int]) -> None:
        """Add events that are not known to be settled."""
        self.ids.add(epoch, sequences)
        self.settled.clear()
        self.counted.clear()

    def join(self, share: "Share") -> None:
        """Take in another share of the same minute."""
        self.ids.update(share.ids)
        self.late.update(share.late)
        self.event_us = min(self.event_us, share.event_us)
        self.settled &= share.settled
        self.counted.clear()


class _Block:
    """Shares that are counted together."""

    __slots__ = ("_changes", "_counted_names", "names", "opens", "shares")

    def __init__(self) -> None:
        self.shares: dict[PipeMinute, Share] = {}
        self.names: set[str] = set()
        """Destinations that events of its minutes want."""
        self.opens: dict[str, _OpenOfBlock] = {}
        """Destination to the open events there."""
        self._changes = -1
        self._counted_names: AbstractSet[str] | None = None

    def invalidate(self) -> None:
        """A share was added, removed or changed."""
        self._changes = -1

    def refresh(self) -> None:
        """Drop what was counted if a minute or a share has changed since. Changes only become more."""
        changes = sum([pipe_minute.changes for pipe_minute in self.shares])
        if changes != self._changes:
            self._changes = changes
            self._counted_names = None
            self.names = set[str]().union(*map(wanted_destinations, self.shares))

    def count(self, destination_names: AbstractSet[str], stages: StagesOfMinutes) -> list[PipeMinute]:
        """Count the open events at some destinations, after `refresh`.

        Returns:
            Minutes whose events are settled at all the destinations there can be: the piece removes them.
        """
        if self._counted_names == destination_names:
            return []
        self.opens, self._counted_names = {}, destination_names
        settled_minutes = []
        for pipe_minute, share in self.shares.items():
            share.keep_counts(pipe_minute.changes)
            for name in destination_names - share.settled:
                self._count_share(share, pipe_minute, name, stages)
            if (
                destination_names
                and share.settled.issuperset(destination_names)
                and not stages[pipe_minute].undecided(share.ids)
            ):
                settled_minutes.append(pipe_minute)
        return settled_minutes

    def _count_share(self, share: Share, pipe_minute: PipeMinute, name: str, stages: StagesOfMinutes) -> None:
        open_of_minute = share.counted.get(name)
        if open_of_minute is None:
            minute_stages = stages[pipe_minute]
            open_ids = minute_stages.without_outcome(share.ids, name)
            if not open_ids:
                share.settled.add(name)
                return
            late_count = len(open_ids & share.late) if share.late else 0
            open_of_minute = share.counted[name] = _OpenOfMinute(
                minute_stages.count(open_ids, name),
                minute_stages.on_first_pass(open_ids, name),
                late_count,
                late_count < len(open_ids),
            )
        open_of_block = self.opens.get(name)
        if open_of_block is None:
            open_of_block = self.opens[name] = _OpenOfBlock()
        open_of_block.add(open_of_minute, share.event_us)


class Piece:
    """Events of a pipe in a range of `raw`, none of which was acknowledged before a time."""

    __slots__ = ("_block_of", "_blocks", "since_us")

    def __init__(self, since_us: int) -> None:
        self.since_us = since_us
        self._blocks: list[_Block] = []
        self._block_of: dict[PipeMinute, _Block] = {}

    def __bool__(self) -> bool:
        """Whether anything is open."""
        return bool(self._block_of)

    def share_to_change(self, pipe_minute: PipeMinute) -> Share:
        """The share of a minute, new if there is none; the caller may change it until it looks again."""
        block = self._block_of.get(pipe_minute)
        if block is None:
            block = self._last_block()
            self._add_share(pipe_minute, Share(), block)
        block.invalidate()
        return block.shares[pipe_minute]

    def remove(self, pipe_minute: PipeMinute) -> None:
        """Remove the share of a minute, if there is one."""
        block = self._block_of.pop(pipe_minute, None)
        if block is None:
            return
        del block.shares[pipe_minute]
        block.invalidate()
        if not block.shares:
            self._blocks.remove(block)

    def join(self, later_piece: "Piece") -> None:
        """Take in the piece that follows."""
        for pipe_minute, share in later_piece.shares():
            if pipe_minute in self._block_of:
                self.share_to_change(pipe_minute).join(share)
            else:
                self._add_share(pipe_minute, share, self._last_block())

    def shares(self) -> Iterator[tuple[PipeMinute, Share]]:
        """The shares of all minutes."""
        for pipe_minute, block in self._block_of.items():
            yield pipe_minute, block.shares[pipe_minute]

    def refresh(self) -> set[str]:
        """Drop what has changed since it was counted.

        Returns:
            Destinations that events want.
        """
        for block in self._blocks:
            block.refresh()
        return set[str]().union(*(block.names for block in self._blocks))

    def look(
        self,
        destination_names: AbstractSet[str],
        stages: StagesOfMinutes,
        open_by_destination: dict[str, OpenAt],
    ) -> None:
        """Add the open events at some destinations, after `refresh`, and drop shares settled at all there can be.

        Args:
            destination_names: whose open events are added.
            stages: of the minutes as they are now.
            open_by_destination: destination to the open events there.
        """
        for block in list(self._blocks):
            for pipe_minute in block.count(destination_names, stages):
                self.remove(pipe_minute)
            for name, open_of_block in block.opens.items():
                open_at = open_by_destination.get(name)
                if open_at is None:
                    open_at = open_by_destination[name] = OpenAt(self.since_us, NEVER_US)
                open_of_block.add_to(open_at, self.since_us)

    def _last_block(self) -> _Block:
        """The last block, or a new one if it is full."""
        if not self._blocks or len(self._blocks[-1].shares) >= _BLOCK_MINUTES:
            self._blocks.append(_Block())
        return self._blocks[-1]

    def _add_share(self, pipe_minute: PipeMinute, share: Share, block: _Block) -> None:
        block.shares[pipe_minute] = share
        block.invalidate()
        self._block_of[pipe_minute] = block
