"""Progress of reading `raw`, as times: everything that was acknowledged before such a time has been read. Pure.

The end of `raw` that Kafka answers to a request sent at a time covers everything that was acknowledged before it: an
event is acknowledged when it is in `raw`. Ack reports would not do, since a killed ingest sends none.
"""

from collections import deque
from typing import NamedTuple


class RawEnd(NamedTuple):
    """The end offset of `raw`, asked for at a time."""

    asked_us: int
    """Microseconds since 1970 UTC, before the request."""
    end: int


class Frontier:
    """The ends of one partition of `raw` in the order of their times."""

    def __init__(self) -> None:
        self._unread_ends: deque[RawEnd] = deque()
        self._newest_end = 0
        self.asked_us = 0
        """Time of the newest end; 0: none yet."""
        self.reached_us = 0
        """Everything that was acknowledged before this time was read; 0: unknown."""

    def note(self, asked_us: int, end: int, position: int) -> bool:
        """Add an end.

        Args:
            asked_us: before the request, microseconds since 1970 UTC.
            end: that Kafka answered.
            position: the next offset to read.

        An end below what is known is the answer of a broker that does not know that it was replaced as leader; it
        counts for nothing.

        Returns:
            False: the clock was set back, so no earlier time counts any more.
        """
        if end < max(position, self._newest_end):
            return True
        self._newest_end = end
        clock_ascends = asked_us >= self.asked_us
        if not clock_ascends:
            self._unread_ends.clear()
            self.reached_us = 0
        self.asked_us = asked_us
        if end <= position:
            self._unread_ends.clear()
            self.reached_us = asked_us
        else:
            self._unread_ends.append(RawEnd(asked_us, end))
        return clock_ascends

    def begin_again(self) -> None:
        """The topic is read from its beginning again, which may end before the ends so far."""
        self._unread_ends.clear()
        self._newest_end = self.reached_us = 0

    def pieces(self, next_offset: int, stop_offset: int) -> list[tuple[int, int]]:
        """Divide offsets that are read now, and count them as read.

        Args:
            next_offset: the next offset to read.
            stop_offset: the offset after the last.

        Returns:
            End offset of each piece, and the time before which none of its records was acknowledged (0: unknown).
        """
        pieces: list[tuple[int, int]] = []
        since_us = self.reached_us
        while self._unread_ends and self._unread_ends[0].end <= stop_offset:
            raw_end = self._unread_ends.popleft()
            if raw_end.end > next_offset:
                pieces.append((raw_end.end, since_us))
            since_us = raw_end.asked_us
        if not pieces or pieces[-1][0] < stop_offset:
            pieces.append((stop_offset, since_us))
        self.reached_us = since_us
        return pieces
