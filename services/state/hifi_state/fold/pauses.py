"""How long a step waits between two of its rounds. Pure."""

from typing import Final

from hifi.runtime.backoff import backoff_s

_MARGIN_S: Final = 0.1
"""A round begins so long after a window is expected to close: one that comes too early costs as much as another."""
_AGAIN_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Pauses while a window does not close that was expected to."""


class Pauses:
    """A round begins after the interval, or earlier, when a window is expected to close.

    Watermarks are expected to rise as fast as the clock.
    """

    def __init__(self, interval_s: float, every_ms: int | None) -> None:
        """Nothing is expected yet.

        Args:
            interval_s: the longest pause, seconds.
            every_ms: from the end of a window to that of the next one, milliseconds; None: windows have no common ends.
        """
        self._interval_s = interval_s
        self.every_ms: Final = None if every_ms is None or every_ms < interval_s * 1000 else every_ms
        """None also where windows end more often than rounds begin: then no round is early."""
        self._overdue = 0
        self._closing_in_ms: int | None = None
        self._expected_s = 0.0

    def next_s(self, closing_in_ms: int | None, read_s: float, now_s: float) -> float:
        """The next pause, seconds.

        Args:
            closing_in_ms: how much the lowest watermark has to rise until a window closes, milliseconds; None: unknown.
            read_s: when it was read.
            now_s: now, by the same clock.
        """
        if closing_in_ms is None:
            return self._interval_s
        if closing_in_ms != self._closing_in_ms:  # one that stands still is expected when it was before
            self._closing_in_ms = closing_in_ms
            self._expected_s = read_s + closing_in_ms / 1000 + _MARGIN_S
        pause_s = self._expected_s - now_s
        if pause_s > 0:
            self._overdue = 0
        else:
            pause_s = backoff_s(self._overdue, _AGAIN_S)
            self._overdue += 1
        return min(self._interval_s, pause_s)
