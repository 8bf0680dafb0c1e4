"""The parts of the events of a key in a stretch of time that moves on. Pure."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from hifi_state.fold.window_row import PartValue

Values: TypeAlias = Sequence[PartValue]


class TrailingWindow:
    """Events enter in the order of time, and leave in it. Each one is merged at most three times.

    Two stacks make a queue whose total is known without taking any value away again, which the greatest of some values
    and sums of doubles do not allow: each entry of the older stack has the total of it and all that follow it there.
    See Tangwongsan, Hirzel, Schneider: Low-Latency Sliding-Window Aggregation in Worst-Case Constant Time, section 3.
    """

    def __init__(self, merge: Callable[[Values, Values], Values]) -> None:
        """There are no events.

        Args:
            merge: gives the parts of two stretches as one, the earlier one first.
        """
        self._merge: Final = merge
        self._older: list[tuple[int, Values]] = []
        """End and total, the earliest last."""
        self._newer: list[tuple[int, Values]] = []
        """End and parts, the latest last."""
        self._newer_total: Values | None = None

    def enter(self, end_ms: int, values: Values) -> None:
        """Add an event that is not before the others.

        Args:
            end_ms: of its row.
            values: its parts.
        """
        total = self._newer_total
        self._newer.append((end_ms, values))
        self._newer_total = values if total is None else self._merge(total, values)

    def leave(self, end_ms: int) -> None:
        """Take away the events whose rows end before a time."""
        while True:
            while self._older and self._older[-1][0] < end_ms:
                self._older.pop()
            if self._older or not self._newer or self._newer[0][0] >= end_ms:
                return
            self._turn_over()

    def total(self) -> Values:
        """The parts of all events, of which there is at least one."""
        if self._newer_total is None:
            return self._older[-1][1]
        if not self._older:
            return self._newer_total
        return self._merge(self._older[-1][1], self._newer_total)

    def __len__(self) -> int:
        """Number of events."""
        return len(self._older) + len(self._newer)

    def _turn_over(self) -> None:
        """Make the newer stack the older one, which is empty."""
        total: Values | None = None
        while self._newer:
            end_ms, values = self._newer.pop()
            total = values if total is None else self._merge(values, total)
            self._older.append((end_ms, total))
        self._newer_total = None
