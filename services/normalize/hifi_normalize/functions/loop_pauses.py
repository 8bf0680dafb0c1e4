"""Time for which the event loop stood still, which does not count as waiting time."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from hifi.runtime.clock import monotonic_s

_TICK_S: Final = 0.02
_JITTER_S: Final = 0.01
"""A tick that is late by less is on time."""


class LoopPauses:
    """Measures pauses of the event loop, such as of a process that got no CPU, with a tick that comes late then."""

    def __init__(self) -> None:
        self._ended_s = 0.0
        """Of the pauses that a tick has noted."""
        self._due_s: float | None = None
        """When the next tick is due, monotonic; None: nothing is measured."""
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Measure meanwhile."""
        self._begin_tick()
        try:
            yield
        finally:
            self._ended_s, self._due_s = self.total_s, None
            if self._timer is not None:
                self._timer.cancel()

    @property
    def total_s(self) -> float:
        """Time of all pauses so far, with one whose tick is to come, seconds."""
        late_s = 0.0 if self._due_s is None else monotonic_s() - self._due_s
        return self._ended_s + (late_s if late_s > _JITTER_S else 0.0)

    def _tick(self) -> None:
        self._ended_s = self.total_s
        self._begin_tick()

    def _begin_tick(self) -> None:
        self._due_s = monotonic_s() + _TICK_S
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)
