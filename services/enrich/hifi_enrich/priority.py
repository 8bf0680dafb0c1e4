"""A standby starts in the time that nobody else wants: its Spark takes some 12 s of CPU, beside a mesh under load.

Linux shares cores between sessions (`sched_autogroup`) where it is no container, and lets a process lower its session's
part and raise it again without any right. Elsewhere nothing happens.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

LOW, NORMAL = 19, 0
BOUND_S: Final = 15.0
"""On a machine that is full nothing would be left for it; so it is for so long at most."""
_AUTOGROUP: Final = Path("/proc/self/autogroup")


@contextlib.asynccontextmanager
async def low(bound_s: float = BOUND_S) -> AsyncIterator[None]:
    """Within it this process and its children take only what is left, for `bound_s` seconds at most."""
    if os.getsid(0) != os.getpid():  # others are in this session, like a terminal's
        yield
        return
    _set(LOW)
    end = asyncio.get_running_loop().call_later(bound_s, _set, NORMAL)
    try:
        yield
    finally:
        end.cancel()
        _set(NORMAL)


def _set(nice: int) -> None:
    with contextlib.suppress(OSError):
        _AUTOGROUP.write_text(str(nice))
