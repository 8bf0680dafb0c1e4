"""How much may be under way at a time: bytes of bodies, and events a second of a pipe. Pure."""

import math
from collections.abc import Callable
from typing import Final

from hifi_ingest.http.answers import Problem, retry_later

_BURST_S: Final = 1.0


class Memory:
    """Counts the bytes of the bodies that are being worked on."""

    def __init__(self, bound_bytes: int) -> None:
        self._bound_bytes = bound_bytes
        self.held_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Raises Problem: 503, and nothing is taken; unless nothing else is under way."""
        if self.held_bytes and self.held_bytes + size_bytes > self._bound_bytes:
            raise retry_later("too many bytes are being worked on already")
        self.held_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """What was taken is done with."""
        self.held_bytes -= size_bytes


class Rates:
    """A token bucket a pipe; a large batch may overdraw it, and those after it wait longer."""

    def __init__(self, per_s: float, clock: Callable[[], float]) -> None:
        self._per_s = per_s
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, pipe: str, events: int) -> None:
        """Raises Problem: 429 with Retry-After; nothing is taken."""
        if not self._per_s:
            return
        now_s = self._clock()
        tokens, since_s = self._buckets.get(pipe, (self._per_s * _BURST_S, now_s))
        tokens = min(self._per_s * _BURST_S, tokens + (now_s - since_s) * self._per_s)
        if tokens <= 0:
            wait_s = max(1, math.ceil((1 - tokens) / self._per_s))
            raise Problem(
                429,
                f"this pipe takes {self._per_s:g} events a second here",
                [("retry-after", str(wait_s))],
            )
        self._buckets[pipe] = (tokens - events, now_s)
