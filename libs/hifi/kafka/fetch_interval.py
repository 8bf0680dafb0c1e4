"""The time between two Kafka requests: 20 ms when CPUs are free, up to 120 ms when they are saturated.

A request costs about the same with one record as with a hundred, to the service and to the broker. At 500 records a
second, 20 ms take half the CPU of 5 ms and add 4 ms to the median of each hop. Where CPUs are scarce, small requests
take the time in which other processes would handle records, and make all of them late. The share of time that this
process waits for a CPU tells which it is (Linux only; elsewhere the interval stays at its shortest).

Services can keep step by the wall clock: the one that produces sends at multiples of the interval, and the one that
consumes fetches `AFTER_TICK_S` later, so that records hardly wait between the two, whatever the interval. Clocks of
different hosts that disagree cost latency, at most one interval, and nothing else.
"""

import math
import time
from collections.abc import Callable
from typing import Final

from hifi.runtime.process.cpu_time import CpuTime, thread_cpu_time

SHORTEST_S: Final = 0.02
LONGEST_S: Final = 0.12
AFTER_TICK_S: Final = 0.0025
"""Time from a tick until the records that were sent at it are in Kafka, about."""
_CALM: Final = 0.4
"""Up to this share of waiting, of the time in which the process could run, the interval is the shortest."""
_SATURATED: Final = 0.7
"""From this share on it is the longest. Between the two it grows exponentially: 49 ms in the middle."""
_SAMPLE_S: Final = 0.25
_SMOOTHING: Final = 0.75
"""Weight of the previous share at each sample: the interval follows a change within about a second."""


class FetchInterval:
    """The interval of one process, by its CPU pressure. See `FETCH_INTERVAL`."""

    def __init__(
        self,
        read: Callable[[], CpuTime] = thread_cpu_time,
        now_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """Measure from the first use on.

        Args:
            read: CPU time so far; OSError or ValueError: it is unknown.
            now_s: a monotonic clock, seconds.
            wall_s: the clock that all hosts share, seconds.
        """
        self._read = read
        self._now_s = now_s
        self._wall_s = wall_s
        self._next_s = 0.0
        self._last: CpuTime | None = None
        self._share = 0.0

    @property
    def seconds(self) -> float:
        """The interval now. Read it each time; a sample is taken at most four times a second."""
        now_s = self._now_s()
        if now_s >= self._next_s:
            self._next_s = now_s + _SAMPLE_S
            self._sample()
        saturation = min(max(self._share - _CALM, 0) / (_SATURATED - _CALM), 1)
        return SHORTEST_S * math.pow(LONGEST_S / SHORTEST_S, saturation)

    def until_tick_s(self, shortest_s: float = 0.0, after_s: float = 0.0) -> float:
        """Time until the next tick that is not nearer than a quarter of an interval, seconds.

        Args:
            shortest_s: shortest interval between two ticks, seconds.
            after_s: time from the multiples of the interval to the ticks, seconds.
        """
        # Rounded up, so that the rounds of a service's producer, an interval apart, never wait for each other.
        step_s = SHORTEST_S * math.ceil(max(self.seconds, shortest_s) / SHORTEST_S - 1e-6)
        wait_s = step_s - (self._wall_s() - after_s) % step_s
        return wait_s if wait_s >= step_s / 4 else wait_s + step_s

    def _sample(self) -> None:
        try:
            cpu_time = self._read()
        except (OSError, ValueError):
            self._share = 0
            return
        last_time, self._last = self._last, cpu_time
        if last_time is None:
            return
        ran_ns, waited_ns = cpu_time.ran_ns - last_time.ran_ns, cpu_time.waited_ns - last_time.waited_ns
        if ran_ns + waited_ns > 0:
            self._share = _SMOOTHING * self._share + (1 - _SMOOTHING) * waited_ns / (ran_ns + waited_ns)


FETCH_INTERVAL: Final = FetchInterval()
"""The interval of this process, whose event loop runs in one thread."""
