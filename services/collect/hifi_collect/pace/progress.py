"""The progress of the reader of a source: read, remaining, rates. Pure."""

from collections import deque
from typing import Final, NamedTuple

_WINDOW_S: Final = 10.0
"""Time over which rates are counted, seconds."""


class PartitionOffsets(NamedTuple):
    """Positions of a source partition, or the counts of a source without positions."""

    first: int
    """The first that the source has."""
    position: int
    """The next to read."""
    end: int
    """After the last one."""


class SourceProgress:
    """The progress of one source."""

    def __init__(self) -> None:
        self._offsets: dict[str, PartitionOffsets] = {}
        self._read_counts: deque[tuple[float, int]] = deque()
        self._end_counts: deque[tuple[float, int]] = deque()
        self._events = 0

    def put(self, partition: str, offsets: PartitionOffsets, now_s: float) -> None:
        """Set the positions of a source partition.

        Args:
            partition: its name.
            offsets: its positions.
            now_s: monotonic, seconds.
        """
        if partition not in self._offsets:
            self._end_counts.clear()
        self._offsets[partition] = offsets
        _append(self._end_counts, now_s, sum(offsets.end for offsets in self._offsets.values()))

    def advance(self, partition: str, position: int, events: int, now_s: float) -> None:
        """Events of a source partition were read.

        Args:
            partition: its name.
            position: the next to read.
            events: number of events that were read.
            now_s: monotonic, seconds.
        """
        self._events += events
        _append(self._read_counts, now_s, self._events)
        offsets = self._offsets.get(partition)
        if offsets is not None:
            self._offsets[partition] = offsets._replace(position=position, end=max(position, offsets.end))

    def keep(self, partitions: set[str]) -> None:
        """Forget all other source partitions: another instance reads them."""
        for lost_partition in self._offsets.keys() - partitions:
            del self._offsets[lost_partition]
            self._end_counts.clear()

    def done(self) -> int:
        """Events that were read, counted from the first that the source has."""
        return sum(max(0, offsets.position - offsets.first) for offsets in self._offsets.values())

    def remaining(self) -> int:
        """Events that are in the source and not read yet."""
        return sum(max(0, offsets.end - offsets.position) for offsets in self._offsets.values())

    def read_per_s(self, now_s: float) -> float:
        """Events that were read per second, lately."""
        recent_counts = [(time_s, count) for time_s, count in self._read_counts if time_s > now_s - _WINDOW_S]
        if not recent_counts:
            return 0.0
        count_before_window = next(
            (count for time_s, count in reversed(self._read_counts) if time_s <= now_s - _WINDOW_S), None
        )
        first_s, first_count = recent_counts[0]
        span_s, start_count = now_s - first_s, first_count
        if count_before_window is not None:
            span_s, start_count = _WINDOW_S, count_before_window
        return (recent_counts[-1][1] - start_count) / span_s if span_s > 0 else 0.0

    def arriving_per_s(self) -> float:
        """Events that were written to the source per second, lately."""
        if len(self._end_counts) < 2:
            return 0.0
        (first_s, first_count), (last_s, last_count) = self._end_counts[0], self._end_counts[-1]
        return max(0.0, (last_count - first_count) / (last_s - first_s)) if last_s > first_s else 0.0


def _append(counts: deque[tuple[float, int]], now_s: float, count: int) -> None:
    counts.append((now_s, count))
    while len(counts) > 2 and counts[1][0] <= now_s - 2 * _WINDOW_S:
        counts.popleft()
