"""The two clocks: wall time for timestamps that others read, monotonic time for leases and waits. One wait."""

import asyncio
import contextlib
import time
from typing import Final

MICROSECONDS: Final = 1_000_000


def now_us() -> int:
    """Wall time, microseconds since 1970 UTC."""
    return time.time_ns() // 1000


def monotonic_s() -> float:
    """Monotonic time, seconds since an arbitrary start."""
    return time.monotonic()


async def wait_at_most(event: asyncio.Event, seconds: float) -> bool:
    """Wait until an event is set, at most some seconds; True: it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
