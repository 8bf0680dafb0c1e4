"""Which offsets of a partition are complete, and so may be committed. Pure."""

from collections import deque
from collections.abc import Iterable


class OffsetTracker:
    """Offsets begun in order and completed in any order; the committable offset has no gap below it.

    Memory is proportional to the offsets between the oldest incomplete one and the newest one begun.
    """

    def __init__(self) -> None:
        self._order: deque[int] = deque()
        self._finished: set[int] = set()
        self._committable: int | None = None
        self._passed = -1

    def start(self, offset: int) -> None:
        """Begin an offset; offsets come in ascending order.

        Raises:
            ValueError: the offset is not above the last one.
        """
        if self._order and offset <= self._order[-1]:
            raise ValueError(f"offset {offset} after {self._order[-1]}")
        if not self._order:
            self._committable = self.committable
        self._order.append(offset)

    def pass_to(self, offset: int) -> None:
        """Say that all offsets below this one were begun or have no record, such as the marker of a transaction."""
        self._passed = offset

    def finish(self, offset: int) -> None:
        """Complete an offset: its outputs are acknowledged. Completing it again changes nothing."""
        order, finished = self._order, self._finished
        if not order or offset < order[0]:
            return
        if offset != order[0]:
            finished.add(offset)
            return
        self._committable = order.popleft() + 1
        while order and order[0] in finished:
            finished.discard(order[0])
            self._committable = order.popleft() + 1

    def finish_all(self, offsets: Iterable[int]) -> None:
        """Complete some offsets."""
        for offset in offsets:
            self.finish(offset)

    def finish_through(self, offset: int) -> None:
        """Complete all offsets up to and including this one."""
        order, finished = self._order, self._finished
        while order and (order[0] <= offset or order[0] in finished):
            finished.discard(order[0])
            self._committable = order.popleft() + 1

    @property
    def committable(self) -> int | None:
        """The offset to commit, which a restart reads first; None until one is complete."""
        if not self._order and self._passed > (self._committable or 0):
            return self._passed
        return self._committable

    @property
    def first_pending(self) -> int | None:
        """The first offset that was begun and cannot be committed yet; None: there is none."""
        return self._order[0] if self._order else None

    @property
    def pending(self) -> int:
        """How many offsets were begun and cannot be committed yet."""
        return len(self._order)
