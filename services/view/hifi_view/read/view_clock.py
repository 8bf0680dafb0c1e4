"""The time of views: that of this host, which is held back while Kafka shows it to be ahead."""

from typing import Final

from hifi.runtime import log
from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.trusted_clock import ClockReading, TrustedClock

_AHEAD_US: Final = 5 * MICROSECONDS
"""Clocks of hosts that keep time differ by less."""
_STEP_US: Final = MICROSECONDS
"""A smaller change back is no step: Kafka shows the time no more exactly, since views read what others write."""
logger = log.get(__name__)


class ViewClock:
    """The time by which completeness is stated and rows expire.

    Wall time; that of a `TrustedClock` while wall time is ahead of Kafka's.
    """

    def __init__(self) -> None:
        self._trusted = TrustedClock()
        self._is_ahead = False
        self._highest_offset: int | None = None
        """Of the time and monotonic time, since it went back last."""
        self.set_back = 0
        """Number of times that the time went back: statements by the previous time may not hold."""

    def confirm(self, asked_clocks: ClockReading, append_ms: int, read_monotonic_us: int) -> None:
        """Take in when Kafka appended a record of another process.

        Args:
            asked_clocks: clocks before a broker was asked for an end that is not behind the record.
            append_ms: Kafka's append time, milliseconds since 1970 UTC.
            read_monotonic_us: monotonic clock after the record was read.
        """
        self._trusted.confirm(asked_clocks, append_ms, read_monotonic_us)
        ahead_us = asked_clocks.wall_us - append_ms * 1000
        is_ahead = ahead_us > (_AHEAD_US // 2 if self._is_ahead else _AHEAD_US)
        if is_ahead != self._is_ahead:
            self._is_ahead = is_ahead
            if is_ahead:
                logger.error("clock-ahead-of-kafka", ahead_s=ahead_us / MICROSECONDS)
            else:
                logger.info("clock-agrees-with-kafka")

    def time_us(self, clocks: ClockReading) -> int:
        """The time, microseconds since 1970 UTC."""
        trusted_us = self._trusted.time_us(clocks) if self._is_ahead else None
        time_us = clocks.wall_us if trusted_us is None else trusted_us
        offset = time_us - clocks.monotonic_us
        highest_offset = offset if self._highest_offset is None else self._highest_offset
        if offset < highest_offset - _STEP_US:
            self.set_back += 1
            highest_offset = offset
        self._highest_offset = max(offset, highest_offset)
        return time_us

    def latest_us(self, clocks: ClockReading) -> int | None:
        """A time that has not come yet, microseconds since 1970 UTC; None: Kafka has confirmed none."""
        return self._trusted.latest_us(clocks)
