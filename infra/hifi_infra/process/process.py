"""Supervises one child process, with everything that it starts in turn.

The child leads a session of its own, so a Ctrl-C in the terminal reaches only the supervisor, and one signal
to its process group reaches its children too (the JVM behind a Spark driver). Nothing outlives the
supervisor, not even when that is killed: see `leash.py`.
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

from hifi.errors import Misconfigured
from hifi_infra.process.parent_death import bound_to_this_process, guard

POLL_S = 0.05
LOG_CHECK_S = 5.0
GROUP_GONE_S = 5.0
"""The kernel takes a moment to tear down a killed JVM with a large heap."""


class Process:
    """One child process and its descendants.

    Not bound to an event loop: it may be started in one and stopped in another.

    Args:
        name: what people call it, used in errors.
        argv: the program and its arguments.
        env: the whole environment of the child; None: this process's own.
        log: the file that takes its standard output and error, appended to.
        log_limit_bytes: above it the log moves to `<log>.1`, so at most twice this much is on disk.
        cwd: the folder that it runs in.
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
    ) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.log = log
        self._env = env
        self._cwd = cwd
        self._log_limit_bytes = log_limit_bytes
        self._popen: subprocess.Popen[bytes] | None = None
        self._cpu_s = 0.0
        self._log_keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its group. Raises RuntimeError before the first start."""
        if self._popen is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._popen.pid

    @property
    def started(self) -> bool:
        """Whether it was ever started."""
        return self._popen is not None

    @property
    def returncode(self) -> int | None:
        """The exit code, the negative number of the signal that ended it, or None while it runs."""
        if self._popen is None:
            return None
        self._reap()
        return self._popen.returncode

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended (a paused one runs)."""
        return self._popen is not None and self.returncode is None

    async def start(self) -> None:
        """Starts it; again after it ended.

        Raises:
            Misconfigured: there is no such program.
            RuntimeError: it runs already.
        """
        if self.running:
            raise RuntimeError(f"{self.name} runs already as process {self.pid}")
        if shutil.which(self.argv[0], path=(self._env or os.environ).get("PATH")) is None:
            raise Misconfigured(f"{self.name}: there is no program {self.argv[0]}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._bound_log()
        self._cpu_s = 0.0
        self._popen = self._spawn()
        guard.add(self.pid)
        self._log_keeper = asyncio.create_task(self._keep_log(), name=f"log of {self.name}")

    async def wait(self) -> int:
        """Waits for its end and returns the exit code as `returncode` does."""
        await _exited(self.pid, self)
        code = self.returncode  # reaps the leader, which would count as a member
        assert code is not None
        await self._gone()
        return code

    async def stop(self, grace_s: float = 10.0) -> int:
        """Asks it to end (SIGTERM), and kills the whole group after `grace_s`. Returns the exit code."""
        self.cpu_seconds()
        self._signal(signal.SIGTERM, alone=True)  # its children are its own to end, in its own order
        self._signal(signal.SIGCONT)  # a paused one could not hear
        try:
            async with asyncio.timeout(grace_s):
                return await self.wait()
        except TimeoutError:
            return await self.kill()

    async def kill(self) -> int:
        """Ends it and its descendants at once (SIGKILL). Returns the exit code."""
        self.cpu_seconds()
        self._signal(signal.SIGKILL)
        return await self.wait()

    def pause(self) -> None:
        """Stops its clock and that of its descendants (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on after `pause`."""
        self._signal(signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """User and system time used since its start, by it and its descendants, finished ones included.

        A descendant that is killed before its own parent could wait for it counts up to the last call.
        """
        if self.running:
            total = 0.0
            for member in self._family():
                with contextlib.suppress(psutil.Error):
                    times = member.cpu_times()
                    total += times.user + times.system + times.children_user + times.children_system
            self._cpu_s = max(self._cpu_s, total)
        return self._cpu_s

    def rss_bytes(self) -> int:
        """Resident memory of it and its descendants; pages that they share count for each."""
        total = 0
        for member in self._family():
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
        told = [line for line in text.splitlines() if not line.startswith(("\tat ", "\t... "))]
        return "\n".join(told[-lines:])

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [*bound_to_this_process(), *self.argv],
                env=self._env,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _family(self) -> Iterator[psutil.Process]:
        if not self.running:
            return
        with contextlib.suppress(psutil.Error):
            leader = psutil.Process(self.pid)
            yield leader
            yield from leader.children(recursive=True)

    def _signal(self, number: signal.Signals, *, alone: bool = False) -> None:
        # While its exit is not reaped (only `_reap` does) the number cannot belong to anybody else.
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number) if alone else os.killpg(self.pid, number)

    def _reap(self) -> None:
        popen = self._popen
        if popen is None or popen.returncode is not None:
            return
        # WNOWAIT keeps the group's number ours until its last member was killed.
        if os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(popen.pid, signal.SIGKILL)
        _, status, usage = os.wait4(popen.pid, 0)
        popen.returncode = os.waitstatus_to_exitcode(status)
        self._cpu_s = max(self._cpu_s, usage.ru_utime + usage.ru_stime)
        guard.remove(popen.pid)
        if self._log_keeper is not None:
            with contextlib.suppress(RuntimeError):  # its loop may be closed
                self._log_keeper.cancel()

    async def _gone(self) -> None:
        """Waits, with a bound, until no member of the group runs any more."""
        end = time.monotonic() + GROUP_GONE_S
        while _runs(self.pid) and time.monotonic() < end:
            await asyncio.sleep(POLL_S)

    async def _keep_log(self) -> None:
        while True:
            await asyncio.sleep(LOG_CHECK_S)
            self._bound_log()

    def _bound_log(self) -> None:
        # The child appends (O_APPEND), so it goes on at the new end after the file was cut.
        with contextlib.suppress(
            OSError
        ):  # nothing was logged yet, or the disk is full: the next look tries again
            if self.log.stat().st_size > self._log_limit_bytes:
                shutil.copyfile(self.log, self.log.with_name(self.log.name + ".1"))
                os.truncate(self.log, 0)


def _runs(group: int) -> bool:
    """Whether a group has a member that is more than a zombie (pid 1 may take seconds to reap those)."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # none left, or the number belongs to somebody else by now
        return False
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


async def _exited(pid: int, process: Process) -> None:
    """Returns once the process has ended; does not reap it."""
    if sys.platform != "linux":
        while process.running:
            await asyncio.sleep(POLL_S)
        return
    if not process.running:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    descriptor = os.pidfd_open(pid)
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
