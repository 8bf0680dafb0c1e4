"""The circuit breaker: a pure state machine. The caller brings the time, monotonic seconds."""

from enum import Enum
from typing import Final

LONGEST_PROBE_S: Final = 60.0


class State(Enum):
    """Of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Permit(Enum):
    """Whether a request may be sent, and as what."""

    NO = "no"
    NORMAL = "normal"
    PROBE = "probe"


class Breaker:
    """Opens after failures in a row, then lets one probe through at a time.

    Each failed probe doubles the time to the next one, up to a minute. Only the probe's result counts while the
    breaker is not closed: what was sent before it opened says nothing new.
    """

    def __init__(self, failures: int, probe_s: float) -> None:
        self._limit = failures
        self._first_probe_s = min(probe_s, LONGEST_PROBE_S)
        self._failures = 0
        self._probe_s = self._first_probe_s
        self._probe_at_s = 0.0
        self.state = State.CLOSED

    def refuses(self, now_s: float) -> bool:
        """Whether a delivery need not queue up: it would not be sent soon."""
        if self.state is State.CLOSED:
            return False
        return self.state is State.HALF_OPEN or now_s < self._probe_at_s

    def permit(self, now_s: float) -> Permit:
        """Ask before each request. A PROBE must be followed by `result` or `forgo`."""
        if self.state is State.CLOSED:
            return Permit.NORMAL
        if self.refuses(now_s):
            return Permit.NO
        self.state = State.HALF_OPEN
        return Permit.PROBE

    def result(self, permit: Permit, *, ok: bool, now_s: float) -> None:
        """What came of a request that had the permit."""
        if permit is Permit.PROBE:
            if ok:
                self._close()
            else:
                self._probe_s = min(self._probe_s * 2, LONGEST_PROBE_S)
                self._open(now_s)
        elif self.state is State.CLOSED:
            self._failures = 0 if ok else self._failures + 1
            if self._failures >= self._limit:
                self._open(now_s)

    def forgo(self, permit: Permit) -> None:
        """The request was not sent after all: the next one may be the probe."""
        if permit is Permit.PROBE and self.state is State.HALF_OPEN:
            self.state = State.OPEN

    def trip(self, now_s: float) -> None:
        """Open for another reason than failures, such as equal refusals in a row."""
        if self.state is State.CLOSED:
            self._open(now_s)

    def _open(self, now_s: float) -> None:
        self.state = State.OPEN
        self._probe_at_s = now_s + self._probe_s

    def _close(self) -> None:
        self.state = State.CLOSED
        self._failures = 0
        self._probe_s = self._first_probe_s
