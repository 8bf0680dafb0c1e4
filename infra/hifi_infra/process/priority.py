"""Gives a process that starts beside working ones less CPU time than these, and its full share once it is ready.

An ordinary process may lower its priority but not raise it again, unless RLIMIT_NICE or the capability CAP_SYS_NICE
allows it. Without that nothing is lowered.
"""

import contextlib
import os
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil

STEPS: Final = 5
"""Steps of niceness: with 5 the process gets a third of the CPU time of one beside it that wants as much."""
_CAP_SYS_NICE: Final = 23
_PASSES: Final = 20


def can_restore() -> bool:
    """Whether this process may raise a priority that was lowered."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NICE)
    if soft == resource.RLIM_INFINITY or soft >= 20 - _own():
        return True
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        held = next(line for line in lines if line.startswith("CapEff:"))
        return bool(int(held.split()[1], 16) >> _CAP_SYS_NICE & 1)
    return False


def lowered(argv: Sequence[str]) -> list[str]:
    """A command with lower priority, which all of its children inherit."""
    return ["nice", "-n", str(STEPS), *argv]


def restore(pid: int) -> None:
    """Give a process and all of its descendants the priority of this one; those that have ended are left out."""
    for _ in range(_PASSES):  # a thread may start another one while this goes on
        lower = [thread for thread in _threads(pid) if _niceness(thread) > _own()]
        if not lower:
            return
        for thread in lower:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.setpriority(os.PRIO_PROCESS, thread, _own())


def _own() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def _niceness(thread: int) -> int:
    try:
        return os.getpriority(os.PRIO_PROCESS, thread)
    except ProcessLookupError:
        return _own()


def _threads(pid: int) -> Iterator[int]:
    """Ids of all threads of a process and its descendants; niceness belongs to threads, not to processes."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(OSError):
                yield from (int(one.name) for one in Path(f"/proc/{process.pid}/task").iterdir())
