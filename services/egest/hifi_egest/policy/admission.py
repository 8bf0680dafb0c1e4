"""Decide whether a delivery that does not fit in a lane waits for room or goes to the retrier. Pure.

A full lane can belong to a fast destination with a burst in front of it, for example after a restart, or egest can be
short of CPU. Waiting then keeps the order and delays no other lane, and the retrier would only add work. Or the
destination is slow, and waiting would delay all other lanes: the delivery then goes to the retrier at once.
"""

import math
from typing import Final

QUICK_S: Final = 1.0
"""A lane is fast if it delivers all it holds within this time, seconds."""
SHORT_OF_CPU_S: Final = 3.0
"""The same bound while egest is short of CPU, computed from the destination's answer times alone, seconds."""
PATIENCE_S: Final = 5.0
"""Maximum time that a fast lane may block the others at a stretch, seconds; it recovers at half that speed."""
MOVING_S: Final = 3.0
"""A lane has stalled if no delivery left it for this time, seconds."""
BEGINNING_S: Final = 0.3
"""Time that a lane has after its first delivery to show how fast it is, seconds."""
_WINDOW_S: Final = 0.5


class AdmissionControl:
    """Measures how fast a lane empties, and how long other lanes have waited for it."""

    def __init__(self, now_s: float, max_in_flight: int, max_per_second: float = math.inf) -> None:
        """Start with a lane of unknown speed.

        Args:
            now_s: monotonic, seconds.
            max_in_flight: deliveries that may be in flight to the destination.
            max_per_second: requests that the destination's rate limit permits.
        """
        self._max_in_flight = max_in_flight
        self._max_per_second = max_per_second
        self._shortest_s = self._previous_shortest_s = math.inf
        self._window_start_s = now_s
        self._window_count = 0
        self._per_second: float | None = None
        self._last_delivered_s = now_s
        self._waited_s = 0.0
        self._waited_at_s = now_s

    def lane_started(self, now_s: float) -> None:
        """Forget an old measurement when an empty lane receives its first delivery."""
        if now_s - self._window_start_s > 2 * _WINDOW_S:
            self._per_second = None
            self._shortest_s = self._previous_shortest_s = math.inf
            self._window_count = 0
            self._window_start_s = self._last_delivered_s = now_s

    def delivered(self, count: int, took_s: float, now_s: float) -> None:
        """Count the deliveries of one successful request.

        Args:
            count: deliveries in the request.
            took_s: duration of the request, seconds.
            now_s: monotonic, seconds.
        """
        self._roll_window(now_s)
        self._window_count += count
        self._last_delivered_s = now_s
        self._shortest_s = min(self._shortest_s, took_s)

    def may_wait(self, lane_events: int, now_s: float, *, delays_others: bool, saturated: bool) -> bool:
        """Whether a delivery that does not fit waits for the lane.

        Args:
            lane_events: deliveries in the lane.
            now_s: monotonic, seconds.
            delays_others: another recently used lane has free capacity, so its deliveries would wait, too.
            saturated: the event loop has more work than the machine's CPU permits.
        """
        self._roll_window(now_s)
        if not delays_others:
            return now_s - self._last_delivered_s < MOVING_S
        if self._per_second is None:  # the lane has just started
            if self._shortest_s < math.inf:
                return lane_events <= self._destination_per_second() * QUICK_S
            return now_s - self._window_start_s < BEGINNING_S
        if lane_events <= self._per_second * QUICK_S and self._waited_until(now_s) < PATIENCE_S:
            return True
        # The lane is slow, or others have waited for long. If CPU is the cause, the retrier would only use more of it.
        return saturated and lane_events <= self._destination_per_second() * SHORT_OF_CPU_S

    def waited(self, waited_s: float, now_s: float) -> None:
        """Add time that other lanes waited for this one, seconds."""
        self._waited_s = self._waited_until(now_s) + waited_s
        self._waited_at_s = now_s

    def _destination_per_second(self) -> float:
        """Rate that the destination could take (Little's law), from the answer that this process delayed least."""
        shortest_s = min(self._shortest_s, self._previous_shortest_s)
        if not 0 < shortest_s < math.inf:
            return 0.0
        return min(self._max_in_flight / shortest_s, self._max_per_second)

    def _waited_until(self, now_s: float) -> float:
        return max(0.0, self._waited_s - (now_s - self._waited_at_s) / 2)

    def _roll_window(self, now_s: float) -> None:
        window_age_s = now_s - self._window_start_s
        if window_age_s >= _WINDOW_S and (
            self._window_count or self._per_second is not None or window_age_s >= QUICK_S
        ):
            self._per_second = self._window_count / window_age_s
            self._window_count = 0
            self._window_start_s = now_s
            self._previous_shortest_s, self._shortest_s = self._shortest_s, math.inf
