"""Whether the event loop has more work than the machine's CPU permits."""

import time
from typing import Final

from hifi.runtime.clock import monotonic_s
from hifi.runtime.process.cpu_time import thread_cpu_time

SATURATED: Final = 0.8
"""Share of time, running or waiting for a CPU, from which on the loop counts as saturated."""
_WINDOW_S: Final = 0.25


class CpuSaturation:
    """CPU saturation of the calling thread."""

    def __init__(self) -> None:
        self._window_start_s = monotonic_s()
        self._busy_s = _busy_s()
        self._saturated = False

    def saturated(self) -> bool:
        """Whether the thread was saturated in the last window of at least 250 ms."""
        now_s = monotonic_s()
        if now_s - self._window_start_s >= _WINDOW_S:
            busy_s = _busy_s()
            self._saturated = busy_s - self._busy_s > SATURATED * (now_s - self._window_start_s)
            self._window_start_s, self._busy_s = now_s, busy_s
        return self._saturated


def _busy_s() -> float:
    """Seconds that this thread ran or, where Linux reports it, waited for a CPU."""
    try:
        ran_ns, waited_ns = thread_cpu_time()
        return (ran_ns + waited_ns) / 1e9
    except (OSError, ValueError):
        return time.thread_time()
