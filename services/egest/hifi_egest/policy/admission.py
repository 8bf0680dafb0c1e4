"""Whether what does not fit in a lane may wait a moment for it: pure.

A full lane may be a fast destination with a burst before it, after a restart say, or egest itself is short of CPU:
then waiting keeps the order and costs the others nothing, and the retrier would only add work. Or the destination is
slow, and waiting would delay all others: then the delivery goes to the retrier at once.
"""

import math
from typing import Final

QUICK_S: Final = 1.0
"""A lane that needs no longer than this for all that it holds is fast, seconds."""
SHORT_OF_CPU_S: Final = 3.0
"""The same for a lane that is kept from it by a want of CPU, if only its destination's answers counted, seconds."""
PATIENCE_S: Final = 5.0
"""The longest that a fast lane may keep the others waiting at a stretch, seconds; it recovers at half that speed."""
MOVING_S: Final = 3.0
"""A lane that nothing left for so long does not move, seconds."""
BEGINNING_S: Final = 0.3
"""A lane that has only just begun is given this long to show how fast it is, seconds."""
_WINDOW_S: Final = 0.5


class Flow:
    """How fast a lane is emptied, and how much patience it has used up."""

    def __init__(self, now_s: float, at_a_time: int, most_per_second: float = math.inf) -> None:
        """Begin with a lane of which nothing is known.

        Args:
            now_s: monotonic, seconds.
            at_a_time: deliveries that may be under way.
            most_per_second: that the destination allows.
        """
        self._at_a_time = at_a_time
        self._most = most_per_second
        self._shortest_s = self._shortest_before_s = math.inf
        self._window_s = now_s
        self._count = 0
        self._per_second: float | None = None
        self._last_s = now_s
        self._waited_s = 0.0
        self._counted_s = now_s

    def begins(self, now_s: float) -> None:
        """The lane was empty: how fast it was before says nothing any more."""
        if now_s - self._window_s > 2 * _WINDOW_S:
            self._per_second = None
            self._shortest_s = self._shortest_before_s = math.inf
            self._count = 0
            self._window_s = self._last_s = now_s

    def sent(self, count: int, took_s: float, now_s: float) -> None:
        """So many deliveries were made by one request, which took so long, seconds."""
        self._roll(now_s)
        self._count += count
        self._last_s = now_s
        self._shortest_s = min(self._shortest_s, took_s)

    def may_wait(self, held: int, now_s: float, *, alone: bool, saturated: bool) -> bool:
        """Whether what does not fit now should wait for the lane.

        Args:
            held: deliveries in the lane.
            now_s: monotonic, seconds.
            alone: nobody else would be served any sooner if it did not: no other lane that had work lately starves.
            saturated: egest has more to do than the machine lets it do.
        """
        self._roll(now_s)
        if alone:
            return now_s - self._last_s < MOVING_S
        if self._per_second is None:  # it has only just begun
            if self._shortest_s < math.inf:
                return held <= self._could_per_second() * QUICK_S
            return now_s - self._window_s < BEGINNING_S
        if held <= self._per_second * QUICK_S and self._waited_until(now_s) < PATIENCE_S:
            return True
        # It is slow, or the others have waited for long. If that is for want of CPU, the retrier only costs more of it.
        return saturated and held <= self._could_per_second() * SHORT_OF_CPU_S

    def _could_per_second(self) -> float:
        """What the destination would take (Little's law). The shortest answer has waited least for this process."""
        shortest_s = min(self._shortest_s, self._shortest_before_s)
        return min(self._at_a_time / shortest_s, self._most) if 0 < shortest_s < math.inf else 0.0

    def waited(self, seconds: float, now_s: float) -> None:
        """The others were kept waiting for so long."""
        self._waited_s = self._waited_until(now_s) + seconds
        self._counted_s = now_s

    def _waited_until(self, now_s: float) -> float:
        return max(0.0, self._waited_s - (now_s - self._counted_s) / 2)

    def _roll(self, now_s: float) -> None:
        passed_s = now_s - self._window_s
        if passed_s >= _WINDOW_S and (self._count or self._per_second is not None or passed_s >= QUICK_S):
            self._per_second = self._count / passed_s
            self._count = 0
            self._window_s = now_s
            self._shortest_before_s, self._shortest_s = self._shortest_s, math.inf
