"""The circuit breaker of a destination: a pure state machine. The caller passes the time, monotonic seconds."""

from enum import Enum
from typing import Final

LONGEST_PROBE_S: Final = 60.0
"""Maximum time between two probes, seconds."""


class BreakerState(Enum):
    """State of a circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Permit(Enum):
    """Whether a request may be sent, and whether it is a probe."""

    NO = "no"
    NORMAL = "normal"
    PROBE = "probe"


class CircuitBreaker:
    """Opens after a number of failures in a row, then permits one probe at a time.

    Each failed probe doubles the time to the next one, up to a minute. While the breaker is not closed only the result
    of the probe counts: requests sent before it opened carry no new information.
    """

    def __init__(self, failures: int, probe_s: float) -> None:
        """Start closed.

        Args:
            failures: in a row, after which the breaker opens.
            probe_s: time from opening to the first probe, seconds.
        """
        self._limit = failures
        self._first_probe_s = min(probe_s, LONGEST_PROBE_S)
        self._failures = 0
        self._probe_s = self._first_probe_s
        self._probe_at_s = 0.0
        self.state = BreakerState.CLOSED

    def refuses(self, now_s: float) -> bool:
        """Whether a delivery should not be queued, because no request and no probe will be sent soon."""
        return self.state is BreakerState.OPEN and now_s < self._probe_at_s

    def permit(self, now_s: float) -> Permit:
        """Ask for permission before each request. A PROBE must be followed by `result` or `forgo`."""
        if self.state is BreakerState.CLOSED:
            return Permit.NORMAL
        if self.state is BreakerState.HALF_OPEN or self.refuses(now_s):
            return Permit.NO
        self.state = BreakerState.HALF_OPEN
        return Permit.PROBE

    def result(self, permit: Permit, *, ok: bool, now_s: float) -> None:
        """Report the result of a request that had a permit."""
        if permit is Permit.PROBE:
            if ok:
                self._close()
            else:
                self._probe_s = min(self._probe_s * 2, LONGEST_PROBE_S)
                self._open(now_s)
        elif self.state is BreakerState.CLOSED:
            self._failures = 0 if ok else self._failures + 1
            if self._failures >= self._limit:
                self._open(now_s)

    def forgo(self, permit: Permit) -> None:
        """Return the permit of a request that was not sent: the next request may be the probe."""
        if permit is Permit.PROBE and self.state is BreakerState.HALF_OPEN:
            self.state = BreakerState.OPEN

    def trip(self, now_s: float) -> None:
        """Open for a reason other than failures in a row, such as equal refusals in a row."""
        if self.state is BreakerState.CLOSED:
            self._open(now_s)

    def _open(self, now_s: float) -> None:
        self.state = BreakerState.OPEN
        self._probe_at_s = now_s + self._probe_s

    def _close(self) -> None:
        self.state = BreakerState.CLOSED
        self._failures = 0
        self._probe_s = self._first_probe_s
