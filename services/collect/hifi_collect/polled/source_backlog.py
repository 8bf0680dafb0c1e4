"""Mark the backfill among the events of a source without a log, and count events. Pure."""

from collections.abc import Sequence

from hifi.pipe.sources.event import SourceEvent
from hifi.runtime.clock import MICROSECONDS
from hifi_collect.pace.progress import PartitionOffsets


class SourceBacklog:
    """The backlog of one reader of a source.

    The reader is behind from a batch after which more events wait until the first batch after which none wait. Its
    events in between are backfill.
    """

    def __init__(self, after_s: float | None) -> None:
        """Nothing is read yet.

        Args:
            after_s: age above which an event with a time may be backfill, seconds; None: any event may be.
        """
        self._after_us = None if after_s is None else int(after_s * MICROSECONDS)
        self._behind = False
        self.offsets = PartitionOffsets(0, 0, 0)
        """Number of events that were read since the reader began, and number with those that wait."""

    def mark(self, events: Sequence[SourceEvent], remaining: int | None, now_us: int) -> int:
        """Mark the backfill among the events of a batch, and return the number of marked events.

        Args:
            events: of the batch.
            remaining: number of events that wait after them; None: not known, which changes nothing.
            now_us: time at which they were read, microseconds since 1970 UTC.
        """
        is_behind = self._behind or bool(remaining)
        if remaining is not None:
            self._behind = remaining > 0
        position = self.offsets.position + len(events)
        end_position = max(self.offsets.end, position) if remaining is None else position + remaining
        self.offsets = PartitionOffsets(0, position, end_position)
        if not is_behind:
            return 0
        marked_count = 0
        for event in events:
            event.backfill = self._after_us is None or _is_old(event.time_us, now_us - self._after_us)
            marked_count += event.backfill
        return marked_count


def _is_old(time_us: int | None, limit_us: int) -> bool:
    return time_us is None or time_us < limit_us
