"""Which processes give way to others where CPU time is scarce.

`lower` lets a process that starts beside working ones have only the CPU time that these leave, until it is ready.
Its threads run in the scheduling class SCHED_IDLE (Linux, sched(7)): a thread of a working process takes the CPU from
them at once. With autogroups (`kernel.sched_autogroup_enabled`), the class counts only within a session, and each
process of a mesh has one of its own: there the whole session gets the lowest niceness.

An ordinary process may leave SCHED_IDLE only if RLIMIT_NICE or the capability CAP_SYS_NICE allows its niceness. Without
that nothing is lowered.
"""

import contextlib
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

_CAP_SYS_NICE: Final = 23
_PASSES: Final = 20
_LOWEST: Final = 19
_AUTOGROUP_S: Final = 0.1
_AUTOGROUPS: Final = Path("/proc/sys/kernel/sched_autogroup_enabled")


def give_way(pid: int, niceness: int) -> None:
    """Let a process that was just started, which leads a session, give way to others for good; no right is needed.

    Args:
        pid: of the process.
        niceness: from 1 to 19. With 5 it gets a quarter of a core that another process wants as well.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, niceness)
    _set_autogroups(pid, niceness)


def can_restore() -> bool:
    """Whether this process may give a priority back that was lowered."""
    if sys.platform != "linux":
        return False
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NICE)
    if soft_limit == resource.RLIM_INFINITY or soft_limit >= 20 - os.getpriority(os.PRIO_PROCESS, 0):
        return True
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        capabilities = next(line for line in lines if line.startswith("CapEff:"))
        return bool(int(capabilities.split()[1], 16) >> _CAP_SYS_NICE & 1)
    return False


def lower(pid: int) -> None:
    """Lower the priority of a process and all of its descendants; may block for seconds.

    Their children inherit it, but in an autogroup a new session does not: call it again while processes start.
    """
    _set_class(pid, os.SCHED_IDLE)
    _set_autogroups(pid, _LOWEST)


def restore(pid: int) -> None:
    """Give a process and all of its descendants the usual priority; may block for seconds."""
    _set_class(pid, os.SCHED_OTHER)
    _set_autogroups(pid, 0)


def _set_class(pid: int, scheduling_class: int) -> None:
    """Set the scheduling class of the threads that run in the other one of the two."""
    other_class = {os.SCHED_IDLE: os.SCHED_OTHER, os.SCHED_OTHER: os.SCHED_IDLE}[scheduling_class]
    for _ in range(_PASSES):  # a thread may start another one while this goes on
        threads = [thread for thread in _threads(pid) if _class(thread) == other_class]
        if not threads:
            return
        for thread in threads:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.sched_setscheduler(thread, scheduling_class, os.sched_param(0))


def _class(thread: int) -> int | None:
    try:
        return os.sched_getscheduler(thread)
    except ProcessLookupError:
        return None


def _set_autogroups(pid: int, niceness: int) -> None:
    """Set the niceness of the autogroups of a process and its descendants, but of that of this process."""
    with contextlib.suppress(OSError):
        if _AUTOGROUPS.read_text().strip() != "1":
            return
        group_of_self = _autogroup("self")
        for process in _family(pid):
            group = _autogroup(process)
            if group[:1] != group_of_self[:1] and group[-1:] != [str(niceness)]:
                _set_autogroup(process, niceness)


def _set_autogroup(process: int, niceness: int) -> None:
    file = Path(f"/proc/{process}/autogroup")
    for _ in range(_PASSES):
        try:
            file.write_text(str(niceness))
        except BlockingIOError:  # a user may change one autogroup every 100 ms
            time.sleep(_AUTOGROUP_S)
        except OSError:
            return
        else:
            return


def _autogroup(process: int | str) -> list[str]:
    """Name and niceness of its autogroup, with a word between them; empty without one, or once it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/autogroup").read_text().split()
    return []


def _family(pid: int) -> Iterator[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        yield from (process.pid for process in (parent, *parent.children(recursive=True)))


def _threads(pid: int) -> Iterator[int]:
    """Ids of all threads of a process and its descendants; the class belongs to threads, not to processes."""
    for process in _family(pid):
        with contextlib.suppress(OSError):
            yield from (int(thread.name) for thread in Path(f"/proc/{process}/task").iterdir())
