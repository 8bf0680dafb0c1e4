"""Decide whether the reader of a source partition is behind. Pure.

It is behind while it reads what was in the partition before it came: from its first position, or from one at which it
found more than it had read, up to the end that the partition had then. docs/decisions/backfill.md has the reasons.
"""

from hifi.runtime.clock import MICROSECONDS


class CatchUp:
    """What one reader of a source partition has to catch up with."""

    def __init__(self, after_s: float) -> None:
        """Nothing was read yet.

        Args:
            after_s: an event that was in the source for so long when it is read may be backfill, seconds.
        """
        self._after_us = int(after_s * MICROSECONDS)
        self.target = -1
        """The end that the partition had when the reader was found behind; -1: never."""

    def begin(self, last: int, end: int) -> None:
        """A batch is read: the end of the partition is the next target if the last one was reached.

        Args:
            last: position of the last event of the batch.
            end: position after the last event of the partition, as far as it is known.
        """
        if last >= self.target and end > last + 1:
            self.target = end
        elif self.target < 0:
            self.target = last + 1

    def is_backfill(self, position: int, written_us: int, now_us: int) -> bool:
        """Whether an event is read while the reader catches up.

        Args:
            position: of the event.
            written_us: when it was written to the source, microseconds since 1970 UTC.
            now_us: when it is read.
        """
        return position < self.target and now_us - written_us > self._after_us
