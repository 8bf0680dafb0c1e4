"""The rate limit of a destination. Pure: the caller passes the time, monotonic seconds."""

from typing import Final

BURST_S: Final = 0.1
"""After a pause, at most the requests of this time may be sent at once, seconds (and at least one request)."""


class RequestRateLimit:
    """Spaces requests evenly with the generic cell rate algorithm (ITU-T I.371)."""

    def __init__(self, per_second: float) -> None:
        """Start with an unused limit.

        Args:
            per_second: requests a second; above 0.
        """
        self._next_s = self._last_s = 0.0
        self._between_s = 0.0
        self._credit_s = 0.0
        self.set_rate(per_second)

    def set_rate(self, per_second: float) -> None:
        """Change the rate, requests a second; above 0."""
        self._between_s = 1.0 / per_second
        self._credit_s = max(BURST_S, self._between_s) - self._between_s
        # Requests spaced at the old rate need not wait longer than the new rate requires.
        self._next_s = min(self._next_s, self._last_s + max(BURST_S, self._between_s))

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next request may be sent; 0: now."""
        return max(0.0, self._next_s - self._credit_s - now_s)

    def take(self, now_s: float) -> None:
        """Count a request that is sent now; `wait_s` must be 0."""
        self._next_s = max(self._next_s, now_s) + self._between_s
        self._last_s = now_s
