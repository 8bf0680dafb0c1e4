"""Up to which value rows may be read: transactions that began earlier may still commit lower values. Pure.

A mark is the highest value at a time. It is settled when a while has passed, and every transaction that had written
something at that time has ended. Rows that appear later have higher values, unless a transaction drew its value and
wrote nothing for longer than that while.
"""

from collections import deque
from typing import NamedTuple


class HighWaterMark(NamedTuple):
    """The table at one time."""

    value: str | None
    """Highest value, as text; None: there is no row."""
    next_transaction: int
    """Number that the next transaction gets which writes something."""
    oldest_transaction: int
    """Number of the oldest transaction that has written something and runs; `next_transaction` if there is none."""


class HighWaterMarks:
    """The marks of one table that are not settled yet."""

    def __init__(self, settle_s: float) -> None:
        """There is no mark yet.

        Args:
            settle_s: time after which a mark may be settled, seconds.
        """
        self._settle_s = settle_s
        self._unsettled_marks: deque[tuple[float, HighWaterMark]] = deque()
        self._settled_value: str | None = None

    def settled(self, mark: HighWaterMark, now_s: float) -> str | None:
        """Take a new mark; returns the highest value up to which rows may be read, None: there is none yet.

        Args:
            mark: the table now.
            now_s: monotonic time before it was read, seconds.
        """
        if mark.value is not None and (
            not self._unsettled_marks or self._unsettled_marks[-1][1].value != mark.value
        ):
            self._unsettled_marks.append((now_s, mark))
        while self._unsettled_marks:
            since_s, first = self._unsettled_marks[0]
            if now_s - since_s < self._settle_s or mark.oldest_transaction < first.next_transaction:
                break
            self._settled_value = first.value
            self._unsettled_marks.popleft()
        return self._settled_value

    def held_back_s(self, now_s: float) -> float:
        """Time for which transactions have held back the oldest mark beyond its due time, seconds."""
        return (
            max(0.0, now_s - self._unsettled_marks[0][0] - self._settle_s) if self._unsettled_marks else 0.0
        )
