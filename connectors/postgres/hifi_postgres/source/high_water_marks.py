"""Up to which value rows may be read: transactions that began earlier may still commit lower values. Pure.

A mark is the highest value at a time. It is settled when a while has passed, and then every transaction has ended that
had written something by the end of that while. Rows that appear later have higher values, unless a transaction drew its
value and wrote nothing for longer than that while.
"""

from collections import deque
from typing import NamedTuple


class HighWaterMark(NamedTuple):
    """The table at one time."""

    value: str | None
    """Highest value, as text; None: there is no row."""
    next_transaction: int
    """Number above those of all transactions that have written something."""
    oldest_transaction: int
    """Number of the oldest transaction that has written something and runs; `next_transaction` if there is none."""


class _UnsettledMark:
    """A value that was the highest one at a time.

    Attributes:
        awaited: number below which all transactions have to end; None: the value is not old enough.
    """

    def __init__(self, value: str, since_s: float) -> None:
        self.value = value
        self.since_s = since_s
        self.awaited: int | None = None


class HighWaterMarks:
    """The marks of one table that are not settled yet."""

    def __init__(self, settle_s: float) -> None:
        """There is no mark yet.

        Args:
            settle_s: time after which a mark may be settled, seconds.
        """
        self._settle_s = settle_s
        self._unsettled_marks: deque[_UnsettledMark] = deque()
        self._settled_value: str | None = None

    def settled(self, mark: HighWaterMark, now_s: float) -> str | None:
        """Take a new mark; returns the highest value up to which rows may be read, None: there is none yet.

        Args:
            mark: the table now.
            now_s: monotonic time before it was read, seconds.
        """
        unsettled_marks = self._unsettled_marks
        if mark.value is not None and (not unsettled_marks or unsettled_marks[-1].value != mark.value):
            unsettled_marks.append(_UnsettledMark(mark.value, now_s))
        for unsettled in unsettled_marks:
            if unsettled.awaited is None and now_s - unsettled.since_s >= self._settle_s:
                unsettled.awaited = mark.next_transaction
        while unsettled_marks:
            awaited = unsettled_marks[0].awaited
            if awaited is None or mark.oldest_transaction < awaited:
                break
            self._settled_value = unsettled_marks.popleft().value
        return self._settled_value

    def held_back_s(self, now_s: float) -> float:
        """Time for which transactions have held back the oldest mark beyond its due time, seconds."""
        return (
            max(0.0, now_s - self._unsettled_marks[0].since_s - self._settle_s)
            if self._unsettled_marks
            else 0.0
        )
