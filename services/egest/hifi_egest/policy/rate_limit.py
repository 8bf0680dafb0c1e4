"""A rate limit: pure. The caller brings the time, monotonic seconds."""

from typing import Final

BURST_S: Final = 0.1
"""A pause saves up at most the requests of this time, seconds (and at least one)."""


class Bucket:
    """Spaces requests evenly: the generic cell rate algorithm (ITU-T I.371)."""

    def __init__(self, per_second: float) -> None:
        self._next_s = self._last_s = 0.0
        self._between_s = 0.0
        self._credit_s = 0.0
        self.set_rate(per_second)

    def set_rate(self, per_second: float) -> None:
        """Change the rate, requests a second; above 0."""
        self._between_s = 1.0 / per_second
        self._credit_s = max(BURST_S, self._between_s) - self._between_s
        # What was spaced at the old rate need not wait for longer than the new one asks for.
        self._next_s = min(self._next_s, self._last_s + max(BURST_S, self._between_s))

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next request may be sent, 0: now."""
        return max(0.0, self._next_s - self._credit_s - now_s)

    def take(self, now_s: float) -> None:
        """A request is sent; `wait_s` was 0."""
        self._next_s = max(self._next_s, now_s) + self._between_s
        self._last_s = now_s
