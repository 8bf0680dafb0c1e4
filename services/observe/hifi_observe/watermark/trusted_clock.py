"""A clock that is never ahead: neither of the wall clock, nor of Kafka's, nor after a step of the wall clock. Pure.

A watermark names a time, and a clock that is set forward would make it name one that has not come yet. So the wall time
counts only as far as the monotonic clock has run since Kafka last stamped a record of this process.
"""

from collections import deque
from typing import Final, NamedTuple

_KEPT: Final = 60
"""Stamps that count; after so many of them a step forward is believed."""
_STAMP_US: Final = 1000
"""Kafka stamps whole milliseconds, so a clock that is right may be confirmed up to this much too low."""


class ClockReading(NamedTuple):
    """Both clocks at one moment, the monotonic one read first. Microseconds."""

    monotonic_us: int
    wall_us: int
    """Since 1970 UTC."""


class TrustedClock:
    """Wall time that is held back by the monotonic clock and by Kafka's append times."""

    def __init__(self) -> None:
        self._offsets: deque[int] = deque(maxlen=_KEPT)
        """Wall time less monotonic time, as Kafka confirmed it each time."""

    def confirm(self, written: ClockReading, append_ms: int) -> None:
        """Take in that a record was appended to Kafka, with which clocks it was written.

        Args:
            written: clocks before it was written.
            append_ms: Kafka's append time, milliseconds since 1970 UTC.
        """
        confirmed_us = min(written.wall_us - _STAMP_US, append_ms * 1000)
        self._offsets.append(confirmed_us - written.monotonic_us)

    def time_us(self, now: ClockReading) -> int | None:
        """The time, microseconds since 1970 UTC; None: Kafka has not confirmed it yet."""
        if not self._offsets:
            return None
        return min(now.wall_us, min(self._offsets) + now.monotonic_us)
