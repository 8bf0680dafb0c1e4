"""The last five minutes of a pipe, one sample a second, for the charts that move. Pure."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

KEEP_S: Final = 300
ALWAYS_WATCHED: Final = 20
"""Up to this number of pipes are all sampled; of more of them only those whose page was opened lately."""
WATCH_S: Final = 900
"""A pipe is sampled for this long after its page was last asked for, seconds."""


class RecentSample(NamedTuple):
    """The figures of a pipe in one second. Lags None: nothing was delivered lately."""

    at_s: int
    rate_in: float
    rate_out: float
    p50_us: float | None
    p95_us: float | None


class RecentSeries:
    """Samples of the pipes that are watched."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[RecentSample]] = {}
        self._asked_s: dict[str, float] = {}

    def watch(self, pipe: str, now_s: float) -> None:
        """Note that the page of a pipe is open."""
        self._asked_s[pipe] = now_s

    def watched(self, pipes: Iterable[str], now_s: float) -> list[str]:
        """The pipes to sample now; the samples of all others are dropped."""
        watched_names = list(pipes)
        if len(watched_names) > ALWAYS_WATCHED:
            watched_names = [
                name for name in watched_names if now_s - self._asked_s.get(name, -WATCH_S) < WATCH_S
            ]
        sampled = set(watched_names)
        self._samples = {name: samples for name, samples in self._samples.items() if name in sampled}
        return watched_names

    def add(self, pipe: str, at_s: int, figures: Mapping[str, Any]) -> None:
        """Add one sample, made from the momentary figures of a pipe."""
        lag = figures["lag"]
        p50_us, p95_us = (lag["p50"], lag["p95"]) if lag["count"] else (None, None)
        samples = self._samples.setdefault(pipe, deque(maxlen=KEEP_S))
        samples.append(RecentSample(at_s, figures["rate_in"], figures["rate_out"], p50_us, p95_us))

    def columns(self, pipe: str) -> dict[str, list[Any]]:
        """The samples as columns: time in seconds since 1970 UTC, events per second, lags in milliseconds."""
        samples = self._samples.get(pipe, ())
        return {
            "at": [sample.at_s for sample in samples],
            "rate_in": [sample.rate_in for sample in samples],
            "rate_out": [sample.rate_out for sample in samples],
            "p50_ms": [_ms(sample.p50_us) for sample in samples],
            "p95_ms": [_ms(sample.p95_us) for sample in samples],
        }


def _ms(value_us: float | None) -> float | None:
    return None if value_us is None else value_us / 1000
