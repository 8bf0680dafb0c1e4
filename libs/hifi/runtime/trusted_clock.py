"""A clock that is never ahead: neither of the wall clock, nor of Kafka's, nor after a step of the wall clock.

A watermark names a time, and a clock that is set forward would make it name one that has not come yet. So the wall time
counts only as far as the monotonic clock has run since Kafka last stamped a record of this process.
"""

import time
from collections import deque
from typing import Final, NamedTuple

from hifi.runtime.clock import now_us

_KEPT: Final = 60
"""Stamps that count; after as many new ones a step forward is believed."""
_AGREES_US: Final = 50_000
"""Clocks of two hosts that differ by less agree."""
_JITTER_US: Final = 2000
"""A change by less is no step of a clock: a process may be interrupted between the readings of both clocks."""


class ClockReading(NamedTuple):
    """Both clocks at one time, the monotonic one read first. Microseconds."""

    monotonic_us: int
    wall_us: int
    """Since 1970 UTC."""


def read_clocks() -> ClockReading:
    """Both clocks now."""
    monotonic_us = time.monotonic_ns() // 1000
    return ClockReading(monotonic_us, now_us())


class TrustedClock:
    """Wall time that is held back by the monotonic clock and by Kafka's append times."""

    def __init__(self) -> None:
        self._offsets: deque[int] = deque(maxlen=_KEPT)
        """Wall time less monotonic time, as Kafka confirmed it each time."""
        self._latest_offsets: deque[int] = deque(maxlen=_KEPT)
        """The most that Kafka's time can be ahead of monotonic time, as of each stamp."""
        self._newest_offset: int | None = None
        self.set_back = 0
        """Number of times that the time went back, or stood still while the monotonic clock ran: statements by the
        previous clock may not hold by this one."""

    def confirm(self, write_clocks: ClockReading, append_ms: int, read_monotonic_us: int) -> None:
        """Take in that a record was appended to Kafka.

        Args:
            write_clocks: clocks before it was written.
            append_ms: Kafka's append time, milliseconds since 1970 UTC.
            read_monotonic_us: monotonic clock after it was read back.
        """
        self._latest_offsets.append((append_ms + 1) * 1000 - write_clocks.monotonic_us)
        if write_clocks.wall_us - append_ms * 1000 <= _AGREES_US:
            self._offsets.append(write_clocks.wall_us - write_clocks.monotonic_us)
        else:  # the wall clock is ahead, and the append was before the record was read
            self._offsets.append(append_ms * 1000 - read_monotonic_us)

    def time_us(self, clocks: ClockReading) -> int | None:
        """The time, microseconds since 1970 UTC; None: Kafka has not confirmed it yet."""
        if not self._offsets:
            return None
        offset = min(clocks.wall_us - clocks.monotonic_us, *self._offsets)
        if self._newest_offset is not None and offset < self._newest_offset - _JITTER_US:
            self.set_back += 1
        self._newest_offset = offset
        return offset + clocks.monotonic_us

    def latest_us(self, clocks: ClockReading) -> int | None:
        """A time that no trusted clock has reached yet, microseconds since 1970 UTC; None: Kafka confirmed none."""
        if not self._latest_offsets:
            return None
        offset = max(clocks.wall_us - clocks.monotonic_us, *self._latest_offsets)
        return offset + clocks.monotonic_us + 2 * _AGREES_US
