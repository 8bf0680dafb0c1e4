"""Event-time watermarks of one partition of `raw`, by pipe, as at any offset that may be read again. Pure.

The watermark before an offset is the highest event time of the earlier events of the pipe in the partition. It is kept
with the committed offset, so that a record which is read again gets the same stamp.

What is decided apart from the records holds from an offset on: that a pipe is stamped, that it is not any more, and
the rise of the watermark of a pipe that has no events. The offset is one that no record was stamped at; the decision is
kept with the next commit, and until that is known, the pipe's events wait. A reader that starts again finds it there.

In a stream of two colours the watermark follows the clock, too: it is at least the time at which the event itself came,
and rises to the time at which there are no events. So each colour knows, also without events, that no old one will
count.
"""

import bisect
from collections import deque
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import orjson

from hifi.kafka.adaptive_fetcher import LogEnd
from hifi.pipe.step_inputs import FUTURE_MS, MAX_KEPT_BYTES, kept_bytes

IDLE_S: Final = 1.0
"""Time without events of a pipe after which heartbeats are written, and between two of them, seconds."""
_NO_OFFSET: Final = 2**63
_BEGIN: Final = -1
"""As the watermark of a change: the pipe is stamped from there on."""
_END: Final = -2
"""As the watermark of a change: the pipe is not stamped any more."""


class WatermarkChange(NamedTuple):
    """A change of the watermark of a pipe."""

    at: int
    """Records at this offset and above have it as their stamp."""
    pipe: str
    mark: int
    """Milliseconds since 1970 UTC, or `_BEGIN`, `_END`."""
    decided: bool = False
    """Whether the records do not tell it."""


class Beat(NamedTuple):
    """A heartbeat to write."""

    pipe: str
    stamp_ms: int | None
    """The watermark; None: the pipe had no event in the partition."""


_NEW: Final = tuple.__new__
"""Makes a `WatermarkChange` in a third of the time that its constructor takes, which is interpreted."""


class PartitionWatermarks:
    """The watermarks of a partition.

    Attributes:
        marks: pipe to its watermark before `next_offset`, milliseconds since 1970 UTC; None: it had no event.
        next_offset: the first offset that was not stamped; the caller sets it after records of other pipes; None: no
            record was read since the assignment.
        pipes_offset: offset in the topic `pipes` that the stamped pipes were decided at.
        later_at: offset from which on a decision holds that `go_to` still has to apply.
        unsure: pipes of decisions that may not be kept yet; their events must wait.
    """

    def __init__(self, metadata: str, now_s: float, *, by_clock: bool = False) -> None:
        """Continue where the previous owner committed.

        Args:
            metadata: of the last commit.
            now_s: monotonic time, seconds.
            by_clock: whether watermarks follow the clock, too.
        """
        self._by_clock = by_clock
        self.marks: dict[str, int | None] = {}
        self.next_offset: int | None = None
        self.pipes_offset = -1
        self.unsure: frozenset[str] = frozenset()
        self._kept: dict[str, int | None] = {}
        """The watermarks before the offset of the last `metadata_at`."""
        self._changes: deque[WatermarkChange] = deque()
        """Those since, up to `next_offset`, in order."""
        self._later: list[WatermarkChange] = []
        """Decisions beyond `next_offset`, in order: records are read again."""
        self.later_at = _NO_OFFSET
        self._last_offsets: dict[str, int] = {}
        """Pipe to the offset of its last event since the assignment."""
        self._seen_s: dict[str, float] = {}
        """Pipe to when that was stamped or, since then, a heartbeat was decided; monotonic, seconds."""
        self._reached_end = False
        self._stamped_to = 0
        """The first offset that was not stamped before `go_to` went back."""
        self._restore(metadata, now_s)

    def _restore(self, metadata: str, now_s: float) -> None:
        try:
            body = orjson.loads(metadata)
            entries, self.pipes_offset = dict(body["marks"]), int(body["pipes"])
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            return  # there is no commit, or an operator has moved the offset
        for pipe, entry in entries.items():
            parts = entry if isinstance(entry, list) else [entry]
            if len(parts) == 1 and isinstance(entry, list):
                self._later.append(WatermarkChange(parts[0], pipe, _BEGIN, decided=True))
                continue
            self._kept[pipe] = parts[0]
            if len(parts) > 1:
                self._later.append(
                    WatermarkChange(parts[1], pipe, parts[2] if len(parts) > 2 else _END, decided=True)
                )
        self.marks = dict(self._kept)
        self._seen_s = dict.fromkeys(entries, now_s)
        self._later.sort()
        self._note_later()

    @property
    def in_use(self) -> bool:
        """Whether any pipe is stamped, or will be."""
        return bool(self.marks or self._later or self._changes)

    # Records

    def go_to(self, offset: int) -> None:
        """Be as before the record at this offset, which may have been stamped since the last commit."""
        if self.next_offset is not None and offset < self.next_offset:
            self._stamped_to = max(self._stamped_to, self.next_offset)
            while self._changes and self._changes[-1].at > offset:
                change = self._changes.pop()
                if change.decided:
                    bisect.insort(self._later, change)
            self._note_later()
            self.marks = dict(self._kept)
            for change in self._changes:
                _apply(self.marks, change)
        self._apply_later(offset)
        self.next_offset = offset

    def stamp(self, offset: int, pipe: str, time_us: int, accepted_us: int, now_s: float) -> int | None:
        """The watermark before an event of a pipe in `marks`; the event may raise it.

        Args:
            offset: of the event; they ascend since the last `go_to`.
            pipe: of the event.
            time_us: its event time, microseconds since 1970 UTC.
            accepted_us: its accepted time, likewise, or its append time if that is earlier.
            now_s: monotonic time, seconds.

        Returns:
            Milliseconds since 1970 UTC; None: it is the first event, and the clock does not count.
        """
        mark, accepted_ms = self.marks[pipe], accepted_us // 1000
        stamp_ms, raised_ms = mark, time_us // 1000
        if raised_ms > accepted_ms + FUTURE_MS:
            raised_ms = -1
        if self._by_clock:
            stamp_ms = max(mark or 0, accepted_ms)
            raised_ms = max(raised_ms, stamp_ms)
        self.next_offset = offset + 1
        self._last_offsets[pipe], self._seen_s[pipe] = offset, now_s
        if (-1 if mark is None else mark) < raised_ms:
            self.marks[pipe] = raised_ms
            self._changes.append(_NEW(WatermarkChange, (offset + 1, pipe, raised_ms, False)))
        return stamp_ms

    # Commits

    def metadata_at(self, offset: int) -> str:
        """The metadata of a commit of an offset: the watermarks before it, and the decisions that hold from later on.

        Records below it are not read again.
        """
        while self._changes and self._changes[0].at <= offset:
            _apply(self._kept, self._changes.popleft())
        entries: dict[str, Any] = dict(self._kept)
        for change in self._decisions():
            mark = self._kept.get(change.pipe)
            if change.mark == _BEGIN:
                entries[change.pipe] = [change.at]
            elif change.mark == _END:
                entries[change.pipe] = [mark, change.at]
            else:
                entries[change.pipe] = [mark, change.at, change.mark]
        return orjson.dumps({"pipes": self.pipes_offset, "marks": entries}).decode() if entries else ""

    def decide_pipes(
        self, pipes: AbstractSet[str], pipes_offset: int, end: LogEnd | None, now_s: float
    ) -> None:
        """Stamp these pipes and no others from `next_offset` on, which must be known.

        Nothing is decided until the end of the partition was reached once: a previous owner may have written records
        from here on, which it read after its last commit.

        Args:
            pipes: that steps read.
            pipes_offset: offset in the topic `pipes` that says so; one before `self.pipes_offset` decides nothing.
            end: the end of the partition; None: not known.
            now_s: monotonic time, seconds.
        """
        self._reached_end |= end is not None and end.offset == self.next_offset
        if pipes_offset < self.pipes_offset or self.unsure or not self._reached_end:
            return
        if self.next_offset is None or self.next_offset < self._stamped_to:
            return  # records are handled again
        undecided = {change.pipe for change in self._decisions()}
        stamped_pipes = self.marks.keys() | self._kept.keys() | undecided
        decided = set()
        for pipe in sorted(self.marks.keys() - pipes - undecided):
            self._decide(pipe, _END)
            decided.add(pipe)
        for pipe in sorted(pipes - stamped_pipes):
            if kept_bytes([*stamped_pipes, pipe]) > MAX_KEPT_BYTES:
                break
            stamped_pipes.add(pipe)
            self._decide(pipe, _BEGIN)
            self._seen_s[pipe] = now_s
            decided.add(pipe)
        if decided:
            self.pipes_offset, self.unsure = pipes_offset, frozenset(decided)

    def decide_beats(self, committed: int, end: LogEnd, now_s: float, clock_ms: int = 0) -> list[Beat]:
        """The heartbeats of the pipes without events in the last second, whose watermarks rise by that time.

        Args:
            committed: offset below which all outputs are acknowledged.
            end: the end of the partition; nothing is decided unless all records before it were stamped.
            now_s: monotonic time, seconds.
            clock_ms: the same moment, milliseconds since 1970 UTC.
        """
        if self.unsure or end.offset != self.next_offset:
            return []
        undecided = {change.pipe for change in self._decisions()}
        answered_s = now_s - end.age_s
        beats: list[Beat] = []
        raised = set()
        for pipe, mark in self.marks.items():
            seen_s = self._seen_s[pipe]
            is_open = pipe in undecided or self._last_offsets.get(pipe, -1) >= committed
            if is_open or answered_s - seen_s < IDLE_S:
                continue
            raised_mark = None if mark is None else mark + int((answered_s - seen_s) * 1000)
            if self._by_clock:
                raised_mark = max(mark or 0, clock_ms - int(end.age_s * 1000))
            beats.append(Beat(pipe, raised_mark))
            if raised_mark is not None:
                raised.add(pipe)
            self._seen_s[pipe] = answered_s
        for pipe, stamp_ms in beats:
            if stamp_ms is not None:
                self._decide(pipe, stamp_ms)
        self.unsure = frozenset(raised)
        return beats

    def committed(self) -> None:
        """Kafka has the metadata with all decisions."""
        self.unsure = frozenset()

    def _decide(self, pipe: str, mark: int) -> None:
        assert self.next_offset is not None
        change = WatermarkChange(self.next_offset, pipe, mark, decided=True)
        self._changes.append(change)
        _apply(self.marks, change)

    def _decisions(self) -> list[WatermarkChange]:
        """Those that hold from beyond the last commit on."""
        return [change for change in (*self._changes, *self._later) if change.decided]

    def _apply_later(self, offset: int) -> None:
        while self._later and self._later[0].at <= offset:
            change = self._later.pop(0)
            self._changes.append(change)
            _apply(self.marks, change)
        self._note_later()

    def _note_later(self) -> None:
        self.later_at = self._later[0].at if self._later else _NO_OFFSET


def _apply(marks: dict[str, int | None], change: WatermarkChange) -> None:
    pipe, mark = change.pipe, change.mark
    if mark == _END:
        marks.pop(pipe, None)
    elif mark == _BEGIN:
        marks.setdefault(pipe, None)
    elif pipe in marks:
        marks[pipe] = mark
