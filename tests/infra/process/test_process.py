"""A supervised process: start, stop, exit codes, descendants, logs, and the end of its supervisor."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol, Self

import psutil
import pytest

from hifi.runtime.errors import Misconfigured
from hifi_infra.process import process as module
from hifi_infra.process.process import Process

WITHIN_S = 20

SAYS_READY_AND_WAITS = "import time; print('ready', flush=True); time.sleep(600)"
IGNORES_SIGTERM = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)
EXITS_ON_SIGTERM = """
import signal, sys, time
signal.signal(15, lambda *_: sys.exit(7))
print('ready', flush=True)
time.sleep(600)
"""
WITH_A_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
print('ready', child.pid, flush=True)
while True:
    time.sleep(0.05)
    print(flush=True)  # a sign that it runs
"""
# Starts children from the main or another thread, kills the reaper before the second, and prints all process ids.
# Arguments: log folder, code of the children, how many, thread or main.
SUPERVISOR = """
import asyncio, pathlib, sys, threading, time
from hifi_infra.process.parent_death import reaper
from hifi_infra.process.process import Process
def run():
    for number in range(int(sys.argv[3])):
        if number:
            reaper._reaper.kill()
            reaper._reaper.wait()
        log = pathlib.Path(sys.argv[1], f"{number}.log")
        child = Process("child", [sys.executable, "-c", sys.argv[2]], log=log)
        asyncio.run(child.start())
        while "ready" not in log.read_text():  # by then the parent-death signal is set
            time.sleep(0.01)
        print(child.pid, end=" ")
if sys.argv[4] == "thread":
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    while len(list(pathlib.Path("/proc/self/task").iterdir())) > 1:  # the kernel's side of it
        time.sleep(0.01)
else:
    run()
print(reaper._reaper.pid, flush=True)
time.sleep(600)
"""


DRAINS_WITH_ITS_CHILD = """
import signal, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
def drain(*_):
    time.sleep(0.2)  # a signal to the child too would have ended it by now
    sys.exit(5 if child.poll() is None else 6)
signal.signal(signal.SIGTERM, drain)
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""


async def until(condition: Callable[[], object], description: str) -> None:
    end_s = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < end_s, f"not within {WITHIN_S} s: {description}"
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class StartProcess(Protocol):
    async def __call__(self, code: str) -> Process: ...


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[StartProcess]:
    """Start Python code that prints `ready`; kills it after the test."""
    processes: list[Process] = []

    async def begin(code: str) -> Process:
        process = Process("it", [sys.executable, "-c", code], log=tmp_path / "it.log")
        await process.start()
        processes.append(process)
        await until(lambda: "ready" in process.log.read_text(), "the process says ready")
        return process

    yield begin
    for process in processes:
        await process.kill()


def child_of(process: Process) -> int:
    return int(process.log.read_text().split()[1])


async def test_it_runs_the_program_itself_and_returns_its_exit_code(
    start: StartProcess, tmp_path: Path
) -> None:
    process = Process("it", ["sh", "-c", "echo out; echo err >&2; exit 3"], log=tmp_path / "deep" / "it.log")
    await process.start()
    assert await process.wait() == 3
    assert process.returncode == 3
    assert not process.running
    assert process.tail().splitlines() == ["out", "err"]
    assert psutil.Process((await start(SAYS_READY_AND_WAITS)).pid).cmdline()[1] == "-c"


async def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no-such-program"):
        await Process("it", ["no-such-program"], log=tmp_path / "it.log").start()


async def test_a_second_start_while_it_runs_is_refused_and_one_after_its_end_works(
    start: StartProcess,
) -> None:
    process = await start(SAYS_READY_AND_WAITS)
    first_pid = process.pid
    with pytest.raises(RuntimeError, match="runs already"):
        await process.start()
    await process.kill()
    await process.start()
    assert process.pid != first_pid
    assert process.running


async def test_stop_lets_it_end_in_order(start: StartProcess) -> None:
    process = await start(EXITS_ON_SIGTERM)
    assert await process.stop(grace_s=WITHIN_S) == 7


async def test_stop_leaves_its_children_to_it_while_it_drains(start: StartProcess) -> None:
    process = await start(DRAINS_WITH_ITS_CHILD)
    assert await process.stop(grace_s=WITHIN_S) == 5


async def test_stop_kills_a_process_that_ignores_sigterm_after_the_grace_period(start: StartProcess) -> None:
    process = await start(IGNORES_SIGTERM)
    began_s = time.monotonic()
    assert await process.stop(grace_s=0.5) == -signal.SIGKILL
    assert 0.5 <= time.monotonic() - began_s < WITHIN_S
    assert not process.running


@pytest.mark.parametrize("end", ["stop", "kill", "its own"])
async def test_its_children_end_with_it_however_it_ends(start: StartProcess, end: str) -> None:
    process = await start(WITH_A_CHILD)
    child = child_of(process)
    assert alive(child)
    if end == "its own":
        os.kill(process.pid, signal.SIGTERM)  # to it alone
        await process.wait()
    else:
        await getattr(process, end)()
    assert not alive(child)


async def test_a_paused_process_stands_still_resumes_and_handles_a_stop(start: StartProcess) -> None:
    process = await start(WITH_A_CHILD)
    members = [psutil.Process(process.pid), psutil.Process(child_of(process))]
    process.pause()
    await until(
        lambda: all(member.status() == psutil.STATUS_STOPPED for member in members), "all are stopped"
    )
    process.resume()
    await until(lambda: all(member.status() != psutil.STATUS_STOPPED for member in members), "all go on")
    process.pause()
    assert await process.stop(grace_s=WITHIN_S) == -signal.SIGTERM


async def test_every_waiter_learns_of_the_end(start: StartProcess) -> None:
    process = await start(SAYS_READY_AND_WAITS)
    waiting = [asyncio.create_task(process.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    os.kill(process.pid, signal.SIGTERM)
    async with asyncio.timeout(WITHIN_S):
        assert await asyncio.gather(*waiting) == [-signal.SIGTERM] * 3


def test_it_may_be_started_in_one_event_loop_and_stopped_in_another(tmp_path: Path) -> None:
    process = Process("it", [sys.executable, "-c", SAYS_READY_AND_WAITS], log=tmp_path / "it.log")
    asyncio.run(process.start())
    assert process.running
    assert asyncio.run(process.kill()) == -signal.SIGKILL


async def test_cpu_time_counts_finished_children_and_stays_after_the_end(start: StartProcess) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    code = (
        f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {burn!r}]); "
        "print('ready', flush=True); time.sleep(600)"
    )
    process = await start(code)
    used_s = process.cpu_seconds()
    assert 0.3 <= used_s < 5
    assert process.rss_bytes() > 1_000_000
    await process.kill()
    assert process.cpu_seconds() >= used_s
    assert process.rss_bytes() == 0


async def test_a_log_that_grows_fast_cannot_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOG_CHECK_S", 0.01)
    code = "import time\nfor n in range(10**9): print('line', n, flush=True); n % 100 or time.sleep(0.001)"
    log = tmp_path / "it.log"
    process = Process("it", [sys.executable, "-c", code], log=log, log_limit_bytes=50_000)
    await process.start()
    try:
        moved_log = tmp_path / "it.log.1"
        await until(moved_log.exists, "the log was moved")
        moved_at = moved_log.stat().st_size
        await until(lambda: 0 < log.stat().st_size < moved_at, "the log goes on, short")
        assert log.read_bytes()[:1] != b"\0"
    finally:
        await process.kill()


class SupervisorProcess:
    """SUPERVISOR in a process of its own that a test kills."""

    def __init__(self, folder: Path, code: str, *, children: int = 1, thread_name: str = "main") -> None:
        self._logs = [folder / f"{number}.log" for number in range(children)]
        command = [sys.executable, "-c", SUPERVISOR, str(folder), code, str(children), thread_name]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.popen.stdout is not None
        *self.children, self.reaper = map(int, self.popen.stdout.readline().split())

    def grandchildren(self) -> list[int]:
        """Process ids of the children's children."""
        return [int(number) for log in self._logs for number in log.read_text().split()[1:]]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.kill()
        self.popen.communicate()


async def test_nothing_outlives_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, WITH_A_CHILD) as supervisor:
        all_pids = [*supervisor.children, *supervisor.grandchildren(), supervisor.reaper]
        assert len(all_pids) == 3
        assert all(map(alive, all_pids))
        supervisor.popen.kill()
        await until(lambda: not any(map(alive, all_pids)), "all are gone")


async def test_a_child_dies_with_its_supervisor_even_when_the_reaper_was_killed_before(
    tmp_path: Path,
) -> None:
    with SupervisorProcess(tmp_path, SAYS_READY_AND_WAITS) as supervisor:
        os.kill(supervisor.reaper, signal.SIGKILL)
        assert all(map(alive, supervisor.children))
        supervisor.popen.kill()
        await until(lambda: not any(map(alive, supervisor.children)), "the child is gone")


async def test_a_child_started_in_a_thread_outlives_the_thread_but_not_the_process(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, WITH_A_CHILD, thread_name="thread") as supervisor:
        log = tmp_path / "0.log"
        size = log.stat().st_size
        await until(lambda: log.stat().st_size > size + 2, "it runs")
        all_pids = [*supervisor.children, *supervisor.grandchildren()]
        supervisor.popen.kill()
        await until(lambda: not any(map(alive, all_pids)), "all are gone")


async def test_a_reaper_that_was_killed_is_replaced_by_one_that_knows_all_groups(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, WITH_A_CHILD, children=2) as supervisor:
        all_pids = [*supervisor.children, *supervisor.grandchildren()]
        assert len(all_pids) == 4
        assert all(map(alive, all_pids))
        supervisor.popen.kill()
        await until(lambda: not any(map(alive, all_pids)), "all are gone")
