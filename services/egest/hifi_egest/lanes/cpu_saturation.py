"""Whether the event loop has more to do than the machine lets it do."""

import time
from pathlib import Path
from typing import Final

from hifi.clock import monotonic_s

SATURATED: Final = 0.8
"""The share of time, running or waiting for a CPU, from which on the loop counts as saturated."""
_WINDOW_S: Final = 0.25
_SCHEDSTAT: Final = Path("/proc/thread-self/schedstat")


class Load:
    """Of the thread that asks."""

    def __init__(self) -> None:
        self._at_s = monotonic_s()
        self._busy_s = _busy_s()
        self._saturated = False

    def saturated(self) -> bool:
        """Whether it was, a moment ago."""
        now_s = monotonic_s()
        if now_s - self._at_s >= _WINDOW_S:
            busy_s = _busy_s()
            self._saturated = busy_s - self._busy_s > SATURATED * (now_s - self._at_s)
            self._at_s, self._busy_s = now_s, busy_s
        return self._saturated


def _busy_s() -> float:
    """Seconds that this thread ran or, where Linux tells it, waited for a CPU."""
    try:
        ran_ns, waited_ns, _ = _SCHEDSTAT.read_text("ascii").split()
        return (int(ran_ns) + int(waited_ns)) / 1e9
    except (OSError, ValueError):
        return time.thread_time()
