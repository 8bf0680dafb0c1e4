"""Wait for something that is slow on a busy machine, as long as it makes progress."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

QUIET_S: Final = 300.0
"""Time without any progress after which a missing arrival counts as lost; a slow machine needs minutes for Spark."""
TELL_S: Final = 15.0
_POLL_S: Final = 1.0


class Patience:
    """Waits for something while it makes progress, and tells how far it is."""

    def __init__(self, tell: Callable[[str], None], subject: str) -> None:
        """Begin to wait.

        Args:
            tell: prints a line about the progress.
            subject: what is waited for.
        """
        self._tell = tell
        self._subject = subject
        self._before = ""
        self._changed_s = self._told_s = time.monotonic()

    async def wait(self, state: str) -> bool:
        """Wait a moment; False: the state has not changed for a long time."""
        now_s = time.monotonic()
        if now_s - self._told_s > TELL_S:
            self._tell(f"   {self._subject}: {state}")
            self._told_s = now_s
        if state != self._before:
            self._before, self._changed_s = state, now_s
        elif now_s - self._changed_s > QUIET_S:
            self._tell(f"   {self._subject}: {state}, and no progress for {QUIET_S:.0f} s")
            return False
        await asyncio.sleep(_POLL_S)
        return True
