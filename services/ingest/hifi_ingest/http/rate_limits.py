"""Limit the events per second of each pipe. Pure."""

import math
from collections.abc import Callable
from typing import Final

from hifi.http.problem import Problem
from hifi.token_bucket import TokenBucket

_BURST_S: Final = 1.0


class PipeRateLimits:
    """A token bucket per pipe. A batch may overdraw it; later requests then wait longer."""

    def __init__(self, events_per_s: float, clock: Callable[[], float]) -> None:
        """No events have been accepted yet.

        Args:
            events_per_s: of each pipe; 0: no limit.
            clock: monotonic, seconds.
        """
        self._events_per_s = events_per_s
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, pipe: str, events: int) -> None:
        """Raises Problem (429 with Retry-After) if the pipe is above its rate; then nothing is taken."""
        if not self._events_per_s:
            return
        now_s = self._clock()
        bucket = self._buckets.get(pipe)
        if bucket is None:
            bucket = self._buckets[pipe] = TokenBucket(self._events_per_s, _BURST_S)
        wait_s = bucket.wait_s(now_s)
        if wait_s > 0:
            raise Problem(
                429,
                f"this pipe accepts {self._events_per_s:g} events per second in this process",
                [("retry-after", str(max(1, math.ceil(wait_s))))],
            )
        bucket.take(now_s, events)
