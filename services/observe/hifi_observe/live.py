"""What happened just now, for the views that move: records by stage, and end-to-end lags."""

from collections import Counter, defaultdict, deque

from hifi_observe.stage import Stage

_KEEP = 2000
"""Lags of a pipe that are kept for its momentary p95."""


class Live:
    """Counts since the start, and the newest lags."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Pipe to kind of stage to records seen."""
        self.newest_ms = 0
        self._lags: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=_KEEP))

    def note(self, pipe: str, at: Stage, append_ms: int) -> None:
        """A record was seen."""
        self.counts[pipe][at.kind] += 1
        self.newest_ms = max(self.newest_ms, append_ms)

    def lags(self, pipe: str, values_us: list[int]) -> None:
        """Deliveries succeeded with these lags from accepted time, microseconds."""
        self._lags[pipe].extend(values_us)

    def take_lags(self) -> dict[str, list[int]]:
        """The newest lags of each pipe since it was last asked, microseconds."""
        taken = {pipe: list(values) for pipe, values in self._lags.items() if values}
        self._lags.clear()
        return taken
