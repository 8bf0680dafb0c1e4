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
    """Equal refusals in a row, held until the fault is known."""

    def __init__(self, limit: int) -> None:
        """Start without refusals.

        Args:
            limit: equal refusals in a row from which on the destination is at fault.
        """
        self._limit = limit
        self._count = 0
        self.status = 0
        """HTTP status of the current streak; 0: there is none."""
        self._undecided: deque[tuple[float, T]] = deque()

    def refused(self, refusal: T, status: int, now_s: float) -> tuple[list[T], list[T]]:
        """Add a refusal.

        Args:
            refusal: the refused request, with all that its caller needs later.
            status: of the answer.
            now_s: monotonic, seconds.

        Returns:
            Refusals whose events are at fault, and refusals for which the destination is. If the second list is not
            empty, the destination should receive nothing for now.
        """
        events_at_fault = self.end() if status != self.status else []
        self.status = status
        self._count += 1
        self._undecided.append((now_s, refusal))
        if self._count < self._limit:
            return events_at_fault, []
        return events_at_fault, self.release()

    def end(self) -> list[T]:
        """End the streak after a different answer; returns refusals whose events are at fault."""
        self._count = 0
        self.status = 0
        return self.release()

    def overdue(self, now_s: float) -> list[T]:
        """Take out the refusals held for `HOLD_S`: their events are at fault. The streak continues."""
        refusals: list[T] = []
        while self._undecided and self._undecided[0][0] + HOLD_S <= now_s:
            refusals.append(self._undecided.popleft()[1])
        return refusals

    def release(self) -> list[T]:
        """Take out all held refusals, undecided. The streak continues."""
        refusals = [refusal for _, refusal in self._undecided]
        self._undecided.clear()
        return refusals

    @property
    def holding(self) -> bool:
        """Whether refusals are held."""
        return bool(self._undecided)
