"""The two clocks: wall time for timestamps that others read, monotonic time for waits and leases."""

import time
from typing import Final

MICROSECONDS: Final = 1_000_000


def now_us() -> int:
    """Wall time, microseconds since 1970 UTC."""
    return time.time_ns() // 1000


def monotonic_s() -> float:
    """Monotonic time, seconds since an arbitrary start."""
    return time.monotonic()
