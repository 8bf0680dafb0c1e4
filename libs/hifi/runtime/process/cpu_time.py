"""CPU time of the current thread, and the time that it waited for a CPU."""

from pathlib import Path
from typing import Final, NamedTuple

_SCHEDSTAT: Final = Path("/proc/thread-self/schedstat")


class CpuTime(NamedTuple):
    """Since the thread started, nanoseconds."""

    ran_ns: int
    waited_ns: int
    """Ready to run, but no CPU was free."""


def thread_cpu_time() -> CpuTime:
    """CPU time of the thread that calls.

    Raises:
        OSError, ValueError: the kernel does not publish it (Linux does, in `schedstat`).
    """
    ran_ns, waited_ns, _ = _SCHEDSTAT.read_text("ascii").split()
    return CpuTime(int(ran_ns), int(waited_ns))
