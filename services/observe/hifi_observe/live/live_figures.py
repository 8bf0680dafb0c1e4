"""The momentary figures of pipes, and samples of them for the charts of the last five minutes."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from hifi.runtime.clock import monotonic_s, now_us
from hifi_observe.live import figures
from hifi_observe.live.breaker_state import BreakerView
from hifi_observe.live.recent_series import RecentSeries
from hifi_observe.minutes.minute_store import MinuteStore

_SAMPLE_INTERVAL_S: Final = 1


class LiveFigures:
    """Figures over all partition numbers, from what each has published last.

    Args:
        store: has what is published.
    """

    def __init__(self, store: MinuteStore) -> None:
        self._store = store
        self._recent_series = RecentSeries()

    @property
    def has_figures(self) -> bool:
        """Whether any partition number has published figures."""
        return bool(self._store.live)

    @property
    def reached_us(self) -> int:
        """The time up to which all records were read, microseconds since 1970 UTC; 0: nothing is published yet."""
        return min(
            (partition_figures["reached"] for partition_figures in self._store.live.values()), default=0
        )

    def of_pipe(self, pipe: str) -> dict[str, Any]:
        """See `figures.of_pipe`."""
        return figures.of_pipe(pipe, self._store.live, self._store.previous_live)

    def has_events(self, pipe: str) -> bool:
        """Whether events of a pipe were counted since the instances started."""
        return any(pipe in partition_figures["counts"] for partition_figures in self._store.live.values())

    def breakers(self, pipe: str, destinations: Iterable[str]) -> dict[str, BreakerView]:
        """See `figures.breakers_of`."""
        return figures.breakers_of(pipe, destinations, self._store.live)

    def backlogs(self) -> list[dict[str, Any]]:
        """See `figures.groups`."""
        return figures.groups(self._store.live)

    def total(self, name: str) -> int:
        """The sum of one figure, such as `too_late`, over all partition numbers."""
        return sum(partition_figures[name] for partition_figures in self._store.live.values())

    def recent(self, pipe: str) -> dict[str, list[Any]]:
        """The last five minutes as columns; from now on the pipe is sampled, see `RecentSeries`."""
        self._recent_series.watch(pipe, monotonic_s())
        return self._recent_series.columns(pipe)

    async def sample(self, pipes: Callable[[], Iterable[str]]) -> None:
        """Take one sample a second of each pipe that is watched, until cancelled.

        Args:
            pipes: returns the names of all pipes.
        """
        while True:
            await asyncio.sleep(_SAMPLE_INTERVAL_S)
            at_s = now_us() // 1_000_000
            for pipe in self._recent_series.watched(pipes(), monotonic_s()):
                self._recent_series.add(pipe, at_s, self.of_pipe(pipe))
