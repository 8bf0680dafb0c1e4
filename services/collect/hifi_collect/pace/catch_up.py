"""Decide whether the reader of a source partition is behind. Pure.

It is behind while it reads events that were in the partition before it came: from its first position, or from one at
which it found unread events, up to the end that the partition had then. docs/decisions/backfill.md has the reasons.
"""

from hifi.runtime.clock import MICROSECONDS


class CatchUp:
    """The backlog of one reader of a source partition."""

    def __init__(self, after_s: float) -> None:
        """Nothing was read yet.

        Args:
            after_s: age at which an event may be backfill when it is read, seconds.
        """
        self._after_us = int(after_s * MICROSECONDS)
        self.target = -1
        """The end that the partition had when the reader was found behind; -1: never."""

    def begin(self, last_position: int, end_position: int) -> None:
        """A batch is read: the end of the partition is the next target if the last one was reached.

        Args:
            last_position: position of the last event of the batch.
            end_position: position after the last event of the partition, as far as it is known.
        """
        if last_position >= self.target and end_position > last_position + 1:
            self.target = end_position
        elif self.target < 0:
            self.target = last_position + 1

    def is_backfill(self, position: int, written_us: int, now_us: int) -> bool:
        """Whether an event is read while the reader catches up.

        Args:
            position: of the event.
            written_us: time at which it was written to the source, microseconds since 1970 UTC.
            now_us: time of the read, likewise.
        """
        return position < self.target and now_us - written_us > self._after_us
