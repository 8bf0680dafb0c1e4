"""Which events of a source that has no log are backfill, and how many there are. Pure."""

from collections.abc import Sequence

from hifi.pipe.sources.event import SourceEvent
from hifi.runtime.clock import MICROSECONDS
from hifi_collect.pace.progress import PartitionOffsets


class SourceBacklog:
    """What one reader of a source finds waiting.

    The reader is behind from a batch after which more events wait until the first batch after which none do. What it
    writes meanwhile is backfill.
    """

    def __init__(self, after_s: float | None) -> None:
        """Nothing is read yet.

        Args:
            after_s: an event with a time is backfill only if it is older, seconds; None: whatever its time is.
        """
        self._after_us = None if after_s is None else int(after_s * MICROSECONDS)
        self._behind = False
        self.offsets = PartitionOffsets(0, 0, 0)
        """Events that were read since the reader began, and how many there are with those that wait."""

    def mark(self, events: Sequence[SourceEvent], remaining: int | None, now_us: int) -> int:
        """Mark the events of a batch as backfill that are; returns how many.

        Args:
            events: of the batch.
            remaining: how many wait after them; None: not known, which changes nothing.
            now_us: when they were read, microseconds since 1970 UTC.
        """
        behind = self._behind or bool(remaining)
        if remaining is not None:
            self._behind = remaining > 0
        position = self.offsets.position + len(events)
        end = max(self.offsets.end, position) if remaining is None else position + remaining
        self.offsets = PartitionOffsets(0, position, end)
        if not behind:
            return 0
        marked = 0
        for event in events:
            event.backfill = self._after_us is None or _is_old(event.time_us, now_us - self._after_us)
            marked += event.backfill
        return marked


def _is_old(time_us: int | None, before_us: int) -> bool:
    return time_us is None or time_us < before_us
