"""Which offsets of a partition are finished: pure bookkeeping behind every commit."""

from collections import deque


class OffsetTracker:
    """Offsets started in order and finished in any order; what may be committed has no gap below it.

    Memory is proportional to what is pending between the oldest unfinished offset and the newest started one.
    """

    def __init__(self) -> None:
        self._order: deque[int] = deque()
        self._finished: set[int] = set()
        self._committable: int | None = None

    def start(self, offset: int) -> None:
        """Take up an offset; offsets come in ascending order.

        Raises:
            ValueError: the offset is not above the last one.
        """
        if self._order and offset <= self._order[-1]:
            raise ValueError(f"offset {offset} after {self._order[-1]}")
        self._order.append(offset)

    def finish(self, offset: int) -> None:
        """An offset's outputs are acknowledged. Finishing it again changes nothing."""
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

    def finish_through(self, offset: int) -> None:
        """All offsets up to and with this one are finished."""
        order, finished = self._order, self._finished
        while order and (order[0] <= offset or order[0] in finished):
            finished.discard(order[0])
            self._committable = order.popleft() + 1

    @property
    def committable(self) -> int | None:
        """The next offset to read after a restart, or None as long as nothing is finished."""
        return self._committable

    @property
    def pending(self) -> int:
        """How many offsets were started and cannot be committed yet."""
        return len(self._order)
