"""How long to gather records before Kafka is asked: longer while cores are short.

A request to Kafka costs about the same with one record in it as with a hundred. Where there are cores to spare, many
small requests make a record early; where there are none, they take from everybody the time in which records could be
worked on, and make all of them late. How long this process has waited for a core says which it is (Linux tells;
elsewhere the time stays the shortest).
"""

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

SHORTEST_S: Final = 0.005
LONGEST_S: Final = 0.12
_CALM: Final = 0.3
"""A process that waits for a core in up to this share of the time in which it could run gathers shortest."""
_SHORT: Final = 0.7
"""From this share on it gathers longest. Between the two each step is the same factor: 24 ms in the middle."""
_SAMPLE_S: Final = 0.25
_MEMORY: Final = 0.75
"""What is left of the share of before after one more sample: it follows a change within about a second."""


def thread_cpu_times() -> tuple[int, int]:
    """Nanoseconds that this thread has run, and that it has waited for a core."""
    ran, waited, _ = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()
    return int(ran), int(waited)


class FetchInterval:
    """The time to gather, seconds, by how short cores are. One for a process is enough: see `FETCH_INTERVAL`."""

    def __init__(
        self,
        read: Callable[[], tuple[int, int]] = thread_cpu_times,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read` gives the nanoseconds run and waited so far; OSError or ValueError: nobody knows."""
        self._read = read
        self._now_s = now_s
        self._next_s = 0.0
        self._last: tuple[int, int] | None = None
        self._share = 0.0

    @property
    def seconds(self) -> float:
        """Ask each time; a sample is taken four times a second at most."""
        now_s = self._now_s()
        if now_s >= self._next_s:
            self._next_s = now_s + _SAMPLE_S
            self._sample()
        over = min(max(self._share - _CALM, 0) / (_SHORT - _CALM), 1)
        return SHORTEST_S * math.pow(LONGEST_S / SHORTEST_S, over)

    def _sample(self) -> None:
        try:
            found = self._read()
        except (OSError, ValueError):
            self._share = 0
            return
        last, self._last = self._last, found
        if last is None:
            return
        ran, waited = found[0] - last[0], found[1] - last[1]
        if ran + waited > 0:
            self._share = _MEMORY * self._share + (1 - _MEMORY) * waited / (ran + waited)


FETCH_INTERVAL: Final = FetchInterval()
"""Of this process: its event loop runs in one thread."""
