"""Ends child processes when this process ends, for whatever reason.

Two mechanisms, since each alone leaves a gap: the kernel's parent-death signal (`exec_with_death_signal.py`) works even
when every Python process is killed at once, but reaches direct children only; a process that watches this one
(`process_reaper.py`) reaches whole process groups, on every system.
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


class ReaperClient:
    """Tells this process's one reaper which process groups to kill should this process end."""

    def __init__(self) -> None:
        self._reaper: subprocess.Popen[str] | None = None
        self._groups: set[int] = set()

    def add(self, group: int) -> None:
        """Have the group killed when this process ends. Starts the reaper at the first call."""
        self._groups.add(group)
        self._send(f"+{group}\n")

    def remove(self, group: int) -> None:
        """Forget a group that has ended: the system may give its number to another."""
        self._groups.discard(group)
        self._send(f"-{group}\n")

    def _send(self, line: str) -> None:
        try:
            self._write(line)
        except BrokenPipeError:  # the reaper was killed: start a new one with the whole list
            self._close()
            self._write("")

    def _close(self) -> None:
        if self._reaper is not None and self._reaper.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # buffered lines
                self._reaper.stdin.close()
            self._reaper.wait()
        self._reaper = None

    def _write(self, line: str) -> None:
        if self._reaper is None:
            self._reaper = subprocess.Popen(
                [*ISOLATED, str(HERE / "process_reaper.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                text=True,
            )
            line = "".join(f"+{group}\n" for group in self._groups)
        assert self._reaper.stdin is not None
        self._reaper.stdin.write(line)
        self._reaper.stdin.flush()


reaper: Final = ReaperClient()


def death_signal_command() -> Sequence[str]:
    """The command prefix that makes the kernel kill a child when this process ends.

    Empty outside Linux and outside the main thread: the kernel ties a child to the thread that started it, and only
    the main thread runs as long as the process.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return ()
    return (*ISOLATED, str(HERE / "exec_with_death_signal.py"), str(os.getpid()))
