"""Equal 401, 403 or 404 answers in a row: about the events, or about the destination? Pure.

A destination whose credentials ran out refuses everything, and its events must not become dead letters one by one.
A single such answer is about its event. So a refused delivery is held until another answer says which: many equal ones
in a row, and the destination is to blame; a different one, or none within a moment, and the event is.
"""

from collections import deque
from typing import Final, Generic, TypeVar

HOLD_S: Final = 1.0
"""The longest that a delivery is held, seconds: its offset cannot be committed meanwhile."""

T = TypeVar("T")


class Streak(Generic[T]):
    """The refused deliveries that are held, and how many equal answers came in a row."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self.status = 0
        self._held: deque[tuple[float, T]] = deque()

    def refused(self, item: T, status: int, now_s: float) -> tuple[list[T], list[T]]:
        """A suspect answer came.

        Args:
            item: what was refused.
            status: of the answer.
            now_s: monotonic, seconds.

        Returns:
            Those whose own fault it was, and those that the destination is to blame for: it should get nothing more
            for now.
        """
        events = self.broken() if status != self.status else []
        self.status = status
        self._count += 1
        self._held.append((now_s, item))
        if self._count < self._limit:
            return events, []
        return events, self.release()

    def broken(self) -> list[T]:
        """Another answer came: the streak is over. Returns those whose own fault it was."""
        self._count = 0
        self.status = 0
        return self.release()

    def overdue(self, now_s: float) -> list[T]:
        """Those that were held for long enough: their own fault. The streak goes on."""
        items: list[T] = []
        while self._held and self._held[0][0] + HOLD_S <= now_s:
            items.append(self._held.popleft()[1])
        return items

    def release(self) -> list[T]:
        """Let all go that are held; what becomes of them is the caller's to say."""
        items = [item for _, item in self._held]
        self._held.clear()
        return items

    @property
    def holding(self) -> bool:
        """Something is held."""
        return bool(self._held)
