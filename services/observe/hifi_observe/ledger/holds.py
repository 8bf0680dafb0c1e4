"""Events that hold the watermarks of a partition until a time, although they are not followed. Pure.

Records add holds, snapshots give the time: the period of a hold begins at the first snapshot after it was added.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hifi.runtime.clock import MICROSECONDS


class _Hold:
    """A number of events or records, and when it ends."""

    __slots__ = ("number", "period_us", "until_us")

    def __init__(self, number: int = 0, until_us: int = 0, period_us: int = 0) -> None:
        self.number = number
        self.until_us = until_us
        """Microseconds since 1970 UTC; 0: it has not begun."""
        self.period_us = period_us
        """For how long it holds from the next snapshot on; 0: until `until_us`."""

    def add(self, number: int, period_s: float) -> None:
        """Add some that were read now, and hold for a period, seconds."""
        self.number += number
        self.period_us = max(self.period_us, round(period_s * MICROSECONDS))

    def ended(self, now_us: int) -> bool:
        """Whether it has ended at the time of a snapshot."""
        if self.period_us:
            self.until_us, self.period_us = max(self.until_us, now_us + self.period_us), 0
        return now_us >= self.until_us

    def dump(self) -> list[int]:
        """JSON for the topic `minutes`."""
        return [self.number, self.until_us, self.period_us]


class Holds:
    """Records that were deleted unread, and by pipe events that are not followed any more, or never were."""

    def __init__(self) -> None:
        self._unread_hold = _Hold()
        self._pipes: dict[str, _Hold] = {}

    @property
    def unread(self) -> int:
        """Records of `raw` that Kafka had deleted before they were read."""
        return self._unread_hold.number

    @property
    def pipes(self) -> Counter[str]:
        """Pipe to events that are not followed."""
        return Counter({pipe: hold.number for pipe, hold in self._pipes.items()})

    def deleted_unread(self, number: int, period_s: float) -> None:
        """Records of `raw` were deleted before they were read; they hold for a period, seconds."""
        self._unread_hold.add(number, period_s)

    def unfollowed(self, pipe: str, number: int, period_s: float) -> None:
        """Events were read whose minute is no longer amended; they hold for a period, seconds."""
        self._pipes.setdefault(pipe, _Hold()).add(number, period_s)

    def give_up(self, pipe: str, number: int, until_us: int) -> None:
        """Open events are not followed any more; they hold until a time, microseconds since 1970 UTC.

        Unless `prolong` is called by then, all their records are deleted: none of them gets an outcome any more.
        """
        hold = self._pipes.setdefault(pipe, _Hold())
        hold.number += number
        hold.until_us = max(hold.until_us, until_us)

    def prolong(self, pipe: str, period_s: float) -> None:
        """An event that is not followed is still open: a pipe that is held is held for a period, seconds."""
        hold = self._pipes.get(pipe)
        if hold is not None:
            hold.add(0, period_s)

    def note_time(self, now_us: int) -> None:
        """The time of a snapshot, microseconds since 1970 UTC: what has ended by then holds no more."""
        if self._unread_hold.ended(now_us):
            self._unread_hold = _Hold()
        for pipe in [pipe for pipe, hold in self._pipes.items() if hold.ended(now_us)]:
            del self._pipes[pipe]

    def dump(self) -> dict[str, Any]:
        """JSON for the topic `minutes`, without what does not hold."""
        dump: dict[str, Any] = {}
        if self._unread_hold.number:
            dump["unread"] = self._unread_hold.dump()
        if self._pipes:
            dump["pipes"] = {pipe: hold.dump() for pipe, hold in sorted(self._pipes.items())}
        return dump

    def load(self, dump: Mapping[str, Any]) -> None:
        """Take in what `dump` returned."""
        self._unread_hold = _Hold(*dump.get("unread", ()))
        self._pipes = {pipe: _Hold(*hold) for pipe, hold in dump.get("pipes", {}).items()}
