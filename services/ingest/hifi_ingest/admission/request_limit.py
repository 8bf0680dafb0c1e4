"""Limit the requests in progress by how long they take. Pure.

A queue that empties within the bound is welcome, as it absorbs a burst. One that stays only makes every answer late, so
the limit follows the shortest time of a period, as CoDel does (RFC 8289), and not the mean. Once that exceeds the
bound, the limit becomes at once the number of answers within the bound (Little's law).

The limit is shared by the pipes that have requests in progress (max-min): a pipe below its fair share is let in also
when the limit is reached, so all pipes together have less than twice the limit.
"""

import math
from typing import Final

TICK_S: Final = 0.1
"""Time between two calls of `tick`, seconds."""
_PERIOD_TICKS: Final = 3
_REACHED: Final = 0.8
"""From this share of the limit on it counts as reached."""
_INCREASE: Final = 1.1
_WEIGHT: Final = 0.5
"""Weight of the latest period in the answers per second."""
_CALM: Final = 0.5
"""Up to this share of the bound the limit grows even if it is not reached."""
_FLOOR: Final = 64
"""Requests that are always let in: enough for the throughput of one process at any usual latency of Kafka."""


class RequestLimit:
    """The requests in progress, from their last byte to their answer, and the limit of their number."""

    def __init__(self, bound_s: float, max_requests: int) -> None:
        """No limit below `max_requests` until requests take longer than the bound.

        Args:
            bound_s: time that requests may take, seconds; 0: no limit.
            max_requests: upper bound of the limit, requests.
        """
        self.bound_s = bound_s
        self.in_progress = 0
        self._upper_bound = float(max(max_requests, _FLOOR))
        self._limit = self._upper_bound
        self._requests_by_pipe: dict[str, int] = {}
        self._tick_due_s = math.inf
        self._ticks = 0
        self._period_start_s = -math.inf
        self._answered = 0
        self._answered_per_s = 0.0
        self._peak = 0
        self._shortest_s = math.inf

    @property
    def limit(self) -> float:
        """Requests that may be in progress."""
        return self._limit

    @property
    def limited(self) -> bool:
        """Whether the limit is below its upper bound."""
        return self._limit < self._upper_bound

    def refuses(self, now_s: float, pipe: str) -> bool:
        """Whether a request that arrives now exceeds the limit.

        Args:
            now_s: a monotonic clock that advances within a turn of the event loop, seconds.
            pipe: of the request.
        """
        # A tick that is overdue shows how long this turn of the event loop has taken so far.
        if not self.bound_s or (self.in_progress < self._limit and now_s - self._tick_due_s <= self.bound_s):
            return False
        pipe_requests = self._requests_by_pipe.get(pipe, 0)
        pipe_count = len(self._requests_by_pipe) + (not pipe_requests)
        return pipe_requests >= min(self._limit, self.in_progress) / pipe_count

    def begin(self, pipe: str) -> None:
        """The body of a request was received."""
        self.in_progress += 1
        self._requests_by_pipe[pipe] = self._requests_by_pipe.get(pipe, 0) + 1
        self._peak = max(self._peak, self.in_progress)

    def end(self, pipe: str, duration_s: float | None) -> None:
        """A request was answered.

        Args:
            pipe: of the request.
            duration_s: seconds until the answer; None: it was an error, whose time says nothing.
        """
        self.in_progress -= 1
        remaining_requests = self._requests_by_pipe.pop(pipe) - 1
        if remaining_requests:
            self._requests_by_pipe[pipe] = remaining_requests
        if duration_s is not None:
            self._answered += 1
            self._shortest_s = min(self._shortest_s, duration_s)

    def tick(self, now_s: float) -> None:
        """Adjust the limit; call every `TICK_S` seconds, as punctually as the event loop can."""
        delay_s = max(0.0, now_s - self._tick_due_s)
        self._tick_due_s = now_s + TICK_S
        self._ticks += 1
        if self._ticks < _PERIOD_TICKS:
            return
        rate_per_s = self._answered / (now_s - self._period_start_s)
        self._answered_per_s += (rate_per_s - self._answered_per_s) * (_WEIGHT if self._answered_per_s else 1)
        shortest_s = self._shortest_s + delay_s
        if self._answered and shortest_s > self.bound_s:
            self._limit = max(_FLOOR, min(self._limit, self._peak, self._answered_per_s * self.bound_s))
        elif shortest_s <= self.bound_s * _CALM or (
            self._peak >= self._limit * _REACHED if self._answered else not self._peak
        ):
            self._limit = min(self._upper_bound, self._limit * _INCREASE)
        self._ticks, self._answered, self._period_start_s = 0, 0, now_s
        self._peak, self._shortest_s = self.in_progress, math.inf
