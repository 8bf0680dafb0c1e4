"""How late a stage is, from the end offsets of its input and its committed offsets. Pure.

An offset is translated to seconds by the time at which the end of its partition passed it.
"""

import math
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

WINDOW_S: Final = 6.0
"""Time over which arrivals and completions are counted, seconds."""
_PAUSE_S: Final = 2.5
"""A stage that commits nothing for longer, although it has records, stands still, seconds."""


class StageReading(NamedTuple):
    """The lag of a stage, and its records of the last `WINDOW_S` seconds."""

    service: str
    bound_s: float
    """Above this lag the stage counts as overloaded, seconds."""
    lag_s: float
    """How late the stage is at least, in every partition with events, seconds."""
    arrived: int
    """Records that its input grew by."""
    completed: int
    """Records that it committed."""
    span_s: float
    """Time that the two were counted over, seconds."""
    steady: bool
    """It committed records again and again in all of this time: it did not stand still."""


class _Progress(NamedTuple):
    """The offsets that were last read of a partition."""

    committed: int
    completed: int
    output: int
    growth: int
    """Records that the output had grown by since the reading before."""


class OutputProgress:
    """Offsets that a stage has completed but not committed yet, by the growth of its output.

    In real time enrich commits only at the end of a batch of many seconds. It writes one record for each that it reads,
    except for dead letters, so what its output has grown by is completed, too. Each commit corrects the count: by the
    dead letters, which are missing in it, and by records that were written again after a restart.
    """

    def __init__(self) -> None:
        self._latest_progress: dict[int, _Progress] = {}

    def completed(
        self, end_offsets: Mapping[int, int], committed: Mapping[int, int], outputs: Mapping[int, int]
    ) -> dict[int, int]:
        """The completed offset of each partition that has a committed one.

        Args:
            end_offsets: partition to the end offset of the stage's input.
            committed: partition to the stage's committed offset.
            outputs: partition to the end offset of the stage's output.
        """
        completed_offsets = {}
        for partition, offset in committed.items():
            output = outputs[partition]
            previous_progress = self._latest_progress.get(partition)
            # At the first reading, and if the topic was created again.
            if previous_progress is None or output < previous_progress.output:
                previous_progress = _Progress(offset, offset, output, 0)
            growth = output - previous_progress.output
            completed = previous_progress.completed + growth
            if offset != previous_progress.committed:
                # What was completed after the commit was written after the last reading but one.
                completed = min(completed, offset + previous_progress.growth + growth)
            completed_offsets[partition] = completed = max(offset, min(end_offsets[partition], completed))
            self._latest_progress[partition] = _Progress(offset, completed, output, growth)
        return completed_offsets


class StageLag:
    """The offsets of one stage, as read from Kafka from time to time."""

    def __init__(self, service: str, bound_s: float) -> None:
        """Start without offsets.

        Args:
            service: name of the stage.
            bound_s: of `StageReading`.
        """
        self.service = service
        self.bound_s = bound_s
        self._history_s = max(4 * bound_s, 4 * WINDOW_S)
        self._end_history: dict[int, deque[tuple[float, int]]] = {}
        self._sums: deque[tuple[float, int, int]] = deque()
        self._committed: Mapping[int, int] = {}
        self._progress_s = self._resumed_s = -math.inf

    def add(self, now_s: float, end_offsets: Mapping[int, int], committed: Mapping[int, int]) -> None:
        """Add a reading.

        Args:
            now_s: monotonic, seconds.
            end_offsets: partition to the end offset of the stage's input.
            committed: partition to the stage's committed offset; without those that have none.
        """
        for partition, end in end_offsets.items():
            history = self._end_history.setdefault(partition, deque())
            if history and end < history[-1][1]:  # the topic was created again
                history.clear()
            history.append((now_s, end))
            while len(history) > 2 and history[1][0] <= now_s - self._history_s:
                history.popleft()
        committed_partitions = [partition for partition in end_offsets if partition in committed]
        arrived, completed = (
            sum(end_offsets[partition] for partition in committed_partitions),
            sum(committed[partition] for partition in committed_partitions),
        )
        if not self._sums or completed != self._sums[-1][2] or completed >= arrived:
            if now_s - self._progress_s > _PAUSE_S:
                self._resumed_s = now_s
            self._progress_s = now_s
        self._sums.append((now_s, arrived, completed))
        while len(self._sums) > 2 and self._sums[1][0] <= now_s - WINDOW_S:
            self._sums.popleft()
        self._committed = {partition: committed[partition] for partition in committed_partitions}

    def read(self) -> StageReading | None:
        """The latest reading; None while there are fewer than two."""
        if len(self._sums) < 2:
            return None
        first_s, arrived, completed = self._sums[0]
        last_s, arrived_now, completed_now = self._sums[-1]
        return StageReading(
            self.service,
            self.bound_s,
            self._lag_s(last_s),
            arrived_now - arrived,
            completed_now - completed,
            last_s - first_s,
            last_s - self._progress_s <= _PAUSE_S and last_s - self._resumed_s >= WINDOW_S,
        )

    def _lag_s(self, now_s: float) -> float:
        """The shortest lag of the partitions with events: one that waits for something makes no other late."""
        lags = []
        for partition, history in self._end_history.items():
            committed = self._committed.get(partition)
            if committed is None:
                continue
            if committed < history[-1][1]:
                lags.append(now_s - _passed_s(history, committed))
            elif history[-1][1] > history[0][1]:
                lags.append(0.0)
        shortest_s = min(lags, default=0.0)
        return shortest_s if math.isfinite(shortest_s) else 0.0


def _passed_s(history: deque[tuple[float, int]], offset: int) -> float:
    """When the end passed an offset, by linear interpolation; no earlier than the history."""
    after_s, offset_after = history[-1]
    for before_s, offset_before in reversed(history):
        if offset_before <= offset:
            return (
                before_s + (offset - offset_before) / (offset_after - offset_before) * (after_s - before_s)
                if offset_after > offset_before
                else after_s
            )
        after_s, offset_after = before_s, offset_before
    return after_s
