"""Decide whether a 401, 403 or 404 is about the event or about the destination. Pure.

A destination whose credentials have expired refuses every event, and those events must not become dead letters. A
single refusal is about its event. A refused delivery is therefore held until the next answers decide: a number of equal
refusals in a row means that the destination is at fault; a different answer, or none within `HOLD_S`, means that the
event is.
"""

from collections import deque
from typing import Final, Generic, TypeVar

HOLD_S: Final = 1.0
"""Maximum time that a refused delivery is held, seconds. Its offset cannot be committed meanwhile."""

T = TypeVar("T")


class RefusalStreak(Generic[T]):
    """Equal refusals in a row, with the refused items that are held until the fault is known."""

    def __init__(self, limit: int) -> None:
        """Start without refusals.

        Args:
            limit: equal refusals in a row from which on the destination is at fault.
        """
        self._limit = limit
        self._count = 0
        self.status = 0
        """HTTP status of the current streak; 0: there is none."""
        self._held: deque[tuple[float, T]] = deque()

    def refused(self, item: T, status: int, now_s: float) -> tuple[list[T], list[T]]:
        """Add a refusal.

        Args:
            item: what was refused.
            status: of the answer.
            now_s: monotonic, seconds.

        Returns:
            Items that are at fault themselves, and items for which the destination is at fault. If the second list is
            not empty, the destination should receive nothing for now.
        """
        items_at_fault = self.end() if status != self.status else []
        self.status = status
        self._count += 1
        self._held.append((now_s, item))
        if self._count < self._limit:
            return items_at_fault, []
        return items_at_fault, self.release()

    def end(self) -> list[T]:
        """End the streak after a different answer; returns the items that are at fault themselves."""
        self._count = 0
        self.status = 0
        return self.release()

    def overdue(self, now_s: float) -> list[T]:
        """Take out the items held for `HOLD_S`; they are at fault themselves. The streak continues."""
        items: list[T] = []
        while self._held and self._held[0][0] + HOLD_S <= now_s:
            items.append(self._held.popleft()[1])
        return items

    def release(self) -> list[T]:
        """Take out all held items, undecided. The streak continues."""
        items = [item for _, item in self._held]
        self._held.clear()
        return items

    @property
    def holding(self) -> bool:
        """Whether items are held."""
        return bool(self._held)
