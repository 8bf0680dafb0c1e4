"""Ties processes to this one, so that they end when it ends, however it ends.

Two ways, since either alone leaves a gap: the kernel's parent-death signal (`launch.py`) works even when every
Python here is killed at once, but reaches direct children only; a helper that watches this process (`guard.py`)
reaches whole groups, on every system.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ISOLATED: Final = (sys.executable, "-I", "-S")
"""Python without the environment's settings and without site-packages: it starts in 10 ms."""


class Guard:
    """The one helper of this process that kills the groups it started, should this process vanish."""

    def __init__(self) -> None:
        self._helper: subprocess.Popen[str] | None = None
        self._groups: set[int] = set()

    def add(self, group: int) -> None:
        """From now on the group dies with this process."""
        self._groups.add(group)
        self._tell(f"+{group}\n")

    def remove(self, group: int) -> None:
        """The group is gone; its number may soon belong to somebody else."""
        self._groups.discard(group)
        self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        try:
            self._write(line)
        except BrokenPipeError:  # somebody killed the helper: a new one learns the whole list
            self._bury()
            self._write("")

    def _bury(self) -> None:
        if self._helper is not None and self._helper.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # what it still buffers
                self._helper.stdin.close()
            self._helper.wait()
        self._helper = None

    def _write(self, line: str) -> None:
        if self._helper is None:
            self._helper = subprocess.Popen(
                [*ISOLATED, str(HERE / "process_reaper.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                text=True,
            )
            line = "".join(f"+{group}\n" for group in self._groups)
        assert self._helper.stdin is not None
        self._helper.stdin.write(line)
        self._helper.stdin.flush()


guard: Final = Guard()


def bound_to_this_process() -> Sequence[str]:
    """What to write before a command so that it dies with this process; nothing where that cannot be."""
    # The kernel binds a child to the *thread* that made it: only the main one lives as long as the process.
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return ()
    return (*ISOLATED, str(HERE / "exec_with_death_signal.py"), str(os.getpid()))
