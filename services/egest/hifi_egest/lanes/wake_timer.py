"""A timer that calls back at the earliest of the requested times."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

_LEAST_S: Final = 0.001


class WakeTimer:
    """Calls `callback` once per expiry; requests for a later time than the pending one change nothing."""

    def __init__(self, callback: Callable[[], None]) -> None:
        """Start without a pending call."""
        self._loop = asyncio.get_running_loop()
        self._callback = callback
        self._handle: asyncio.Handle | None = None
        self._call_at_s = math.inf
        """Time of the pending call, on the loop's clock."""

    def wake_in(self, after_s: float) -> None:
        """Call back after `after_s` seconds, or earlier if an earlier call is pending."""
        at_s = self._loop.time() + max(after_s, _LEAST_S)
        if self._handle is not None:
            # The time is kept here: uvloop returns a handle without a time if the moment has already come.
            if self._call_at_s <= at_s:
                return
            self._handle.cancel()
        self._handle, self._call_at_s = self._loop.call_at(at_s, self._expired), at_s

    def _expired(self) -> None:
        self._handle, self._call_at_s = None, math.inf
        self._callback()
