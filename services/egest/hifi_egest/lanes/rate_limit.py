"""The rate limit of a lane: this instance's share of what the destination permits."""

from typing import Final

from hifi.runtime.token_bucket import TokenBucket

_LEAST_RATE: Final = 0.01


class RateLimit:
    """Limits requests a second; without a declared rate there is no limit."""

    def __init__(self, rate: float | None, share: float) -> None:
        """Start with a full bucket.

        Args:
            rate: requests a second that the destination permits; None: any.
            share: of this instance, from 0 to 1.
        """
        self._rate = rate
        self._bucket = TokenBucket(1.0) if rate is not None else None
        self.limited = rate is not None
        """Whether there is a limit; without one, no request needs to ask."""
        self.share = share
        self.set_share(share)

    def set_share(self, share: float) -> None:
        """Change the share of this instance, from 0 to 1."""
        self.share = share
        if self._bucket is not None and self._rate is not None:
            self._bucket.set_rate(max(self._rate * share, _LEAST_RATE))

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next request may be sent; 0: now."""
        return self._bucket.wait_s(now_s) if self._bucket is not None else 0.0

    def take(self, now_s: float) -> None:
        """Count a request that is sent."""
        if self._bucket is not None:
            self._bucket.take(now_s)
