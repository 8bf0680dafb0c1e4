"""Rate limit without waiting: the caller asks how long it would have to wait, and decides. Pure.

ingest answers 429 at once with that time as Retry-After, egest schedules its next request by it. `aiolimiter` only
offers `await acquire()`, which would keep each request and its body waiting instead.
"""


class TokenBucket:
    """Limits a rate with the generic cell rate algorithm (ITU-T I.371): one float of state, no timer.

    Times are monotonic seconds that the caller passes in.
    """

    __slots__ = ("_burst_s", "_credit_s", "_interval_s", "_last_s", "_next_s")

    def __init__(self, rate_per_s: float, burst_s: float = 0.1) -> None:
        """A full bucket.

        Args:
            rate_per_s: tokens a second, above 0.
            burst_s: the bucket holds the tokens of this time, seconds, and at least one.
        """
        self._burst_s = burst_s
        self._next_s = self._last_s = 0.0
        self._interval_s = 0.0
        self._credit_s = 0.0
        self.set_rate(rate_per_s)

    def set_rate(self, rate_per_s: float) -> None:
        """Change the rate, tokens a second, above 0. Debt of the old rate shrinks to what the new rate allows."""
        self._interval_s = 1.0 / rate_per_s
        self._credit_s = max(self._burst_s, self._interval_s) - self._interval_s
        self._next_s = min(self._next_s, self._last_s + max(self._burst_s, self._interval_s))

    def wait_s(self, now_s: float) -> float:
        """Seconds until one token is available; 0: now."""
        return max(0.0, self._next_s - self._credit_s - now_s)

    def take(self, now_s: float, tokens: int = 1) -> None:
        """Take tokens when `wait_s` is 0. Taking more than there are is allowed: later callers wait longer."""
        self._next_s = max(self._next_s, now_s) + self._interval_s * tokens
        self._last_s = now_s
