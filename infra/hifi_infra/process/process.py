"""Starts, stops and measures one child process together with its descendants.

The child leads a session of its own: a Ctrl-C in the terminal reaches only this process, and one signal to the child's
process group reaches its descendants too (the JVM behind a Spark driver). The group ends with this process, even when
that is killed: see `parent_death.py`.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from hifi.runtime.errors import Misconfigured
from hifi_infra.process.parent_death import death_signal_command, reaper
from hifi_infra.process.priority import give_way

POLL_S = 0.05
LOG_CHECK_S = 5.0
GROUP_END_S = 5.0
"""The kernel takes a moment to tear down a killed JVM with a large heap."""
FREEZE_S = 5.0
FREEZE_POLL_S = 0.001
STOPPED = frozenset("TtZX")
"""States of a thread in `/proc` that does not run any more."""


class Process:
    """One child process and its descendants.

    Not bound to an event loop: it may be started in one and stopped in another.

    Args:
        name: used in error messages.
        argv: the program and its arguments.
        env: the whole environment of the child; None: that of this process.
        log: file to which standard output and error are appended.
        log_limit_bytes: a log above this size moves to `<log>.1`, so at most twice this size is on disk.
        cwd: the child's working directory.
        niceness: from 0 to 19: how much it gives way to other processes where CPU time is scarce (`priority.give_way`).
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        log_limit_bytes: int = 16 * 1024 * 1024,
        cwd: Path | None = None,
        niceness: int = 0,
    ) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.log = log
        self._env = env
        self._cwd = cwd
        self._niceness = niceness
        self._log_limit_bytes = log_limit_bytes
        self._popen: subprocess.Popen[bytes] | None = None
        self._cpu_s = 0.0
        self._log_limiter: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process id, which is also the process group id. Raises RuntimeError before the first start."""
        if self._popen is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._popen.pid

    @property
    def started(self) -> bool:
        """Whether `start` was ever called."""
        return self._popen is not None

    @property
    def returncode(self) -> int | None:
        """The exit code, the negative number of the signal that ended the process, or None while it runs."""
        if self._popen is None:
            return None
        self._reap()
        return self._popen.returncode

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended (a paused process counts as running)."""
        return self._popen is not None and self.returncode is None

    async def start(self) -> None:
        """Start it; start it again after it ended.

        Raises:
            Misconfigured: the program does not exist.
            RuntimeError: it is running.
        """
        if self.running:
            raise RuntimeError(f"{self.name} runs already as process {self.pid}")
        if shutil.which(self.argv[0], path=(self._env or os.environ).get("PATH")) is None:
            raise Misconfigured(f"{self.name}: there is no program {self.argv[0]}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._limit_log_size()
        self._cpu_s = 0.0
        self._popen = self._spawn()
        reaper.add(self.pid)
        if self._niceness:
            await asyncio.to_thread(give_way, self.pid, self._niceness)
        self._log_limiter = asyncio.create_task(self._limit_log(), name=f"log of {self.name}")

    async def wait(self) -> int:
        """Wait until it has ended; the exit code as in `returncode`.

        Its descendants were killed by then. `group_ended` tells whether they ended within the 5 s given them.
        """
        await _exited(self.pid, self)
        code = self.returncode  # reaps the leader, which would count as a member of the group
        assert code is not None
        await self._wait_for_group()
        return code

    @property
    def group_ended(self) -> bool:
        """Whether neither it nor any process of its group runs any more."""
        return not self.running and not _group_runs(self.pid)

    async def stop(self, grace_s: float = 10.0) -> int:
        """Send SIGTERM, and kill the whole group after `grace_s` seconds. Returns the exit code."""
        self.cpu_seconds()
        self._signal(signal.SIGTERM, leader_only=True)  # it ends its children itself, in its own order
        self._signal(signal.SIGCONT)  # a paused process would not handle SIGTERM
        try:
            async with asyncio.timeout(grace_s):
                return await self.wait()
        except TimeoutError:
            return await self.kill()

    async def kill(self) -> int:
        """Kill it and its descendants (SIGKILL). Returns the exit code."""
        self.cpu_seconds()
        self._signal(signal.SIGKILL)
        return await self.wait()

    def pause(self) -> None:
        """Freeze it and its descendants (SIGSTOP); returns when they stand still, which takes some milliseconds."""
        self._signal(signal.SIGSTOP)
        end_s = time.monotonic() + FREEZE_S
        while not all(map(_stands_still, self._with_descendants())) and time.monotonic() < end_s:
            time.sleep(FREEZE_POLL_S)

    def resume(self) -> None:
        """Continue after `pause` (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """User and system time of it and its descendants since its start, in seconds; ended descendants included.

        A descendant that is killed before its parent waits for it counts up to the last call of this method.
        """
        if self.running:
            total = 0.0
            for member in self._with_descendants():
                with contextlib.suppress(psutil.Error):
                    times = member.cpu_times()
                    total += times.user + times.system + times.children_user + times.children_system
            self._cpu_s = max(self._cpu_s, total)
        return self._cpu_s

    def rss_bytes(self) -> int:
        """Resident memory of it and its descendants; a shared page counts once for each."""
        total = 0
        for member in self._with_descendants():
            with contextlib.suppress(psutil.Error):
                total += member.memory_info().rss
        return total

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log, without the frames of Java's stack traces."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 64 * 1024))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        text_lines = [line for line in text.splitlines() if not line.startswith(("\tat ", "\t... "))]
        return "\n".join(text_lines[-lines:])

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [*death_signal_command(), *self.argv],
                env=self._env,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _with_descendants(self) -> Iterator[psutil.Process]:
        if not self.running:
            return
        with contextlib.suppress(psutil.Error):
            leader = psutil.Process(self.pid)
            yield leader
            yield from leader.children(recursive=True)

    def _signal(self, number: signal.Signals, *, leader_only: bool = False) -> None:
        # Until `_reap` has waited for it, the system gives its number to no other process.
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number) if leader_only else os.killpg(self.pid, number)

    def _reap(self) -> None:
        popen = self._popen
        if popen is None or popen.returncode is not None:
            return
        # WNOWAIT keeps the group's number reserved until its last member was killed.
        if os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(popen.pid, signal.SIGKILL)
        _, status, usage = os.wait4(popen.pid, 0)
        popen.returncode = os.waitstatus_to_exitcode(status)
        self._cpu_s = max(self._cpu_s, usage.ru_utime + usage.ru_stime)
        reaper.remove(popen.pid)
        if self._log_limiter is not None:
            with contextlib.suppress(RuntimeError):  # its event loop may be closed
                self._log_limiter.cancel()

    async def _wait_for_group(self) -> None:
        """Wait, at most `GROUP_END_S`, until no process of the group runs any more."""
        end_s = time.monotonic() + GROUP_END_S
        while _group_runs(self.pid) and time.monotonic() < end_s:
            await asyncio.sleep(POLL_S)

    async def _limit_log(self) -> None:
        while True:
            await asyncio.sleep(LOG_CHECK_S)
            self._limit_log_size()

    def _limit_log_size(self) -> None:
        # The child appends (O_APPEND), so it continues at the new end after the file was truncated.
        with contextlib.suppress(OSError):  # no log yet, or a full disk: the next check tries again
            if self.log.stat().st_size > self._log_limit_bytes:
                shutil.copyfile(self.log, self.log.with_name(self.log.name + ".1"))
                os.truncate(self.log, 0)


def _stands_still(process: psutil.Process) -> bool:
    """Whether every thread is stopped, or has ended."""
    for thread in Path(f"/proc/{process.pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            state = thread.read_text("utf-8", "replace").rpartition(")")[2].split()[0]
            if state not in STOPPED:
                return False
    return True


def _group_runs(group: int) -> bool:
    """Whether a group has a process that is not a zombie (pid 1 may take seconds to reap those)."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # none left, or the number is another group's by now
        return False
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


async def _exited(pid: int, process: Process) -> None:
    """Wait until the process has ended; does not reap it."""
    if sys.platform != "linux":
        while process.running:
            await asyncio.sleep(POLL_S)
        return
    if not process.running:
        return
    loop = asyncio.get_running_loop()
    end_event = asyncio.Event()
    descriptor = os.pidfd_open(pid)
    try:
        loop.add_reader(descriptor, end_event.set)
        await end_event.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
