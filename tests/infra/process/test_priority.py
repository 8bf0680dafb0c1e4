"""A process that starts with lower priority gets the full one with all threads of its children."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hifi_infra.process import priority
from hifi_infra.process.process import Process

CHILD = """\
import os, sys, threading, time
if len(sys.argv) == 1:
    import subprocess
    subprocess.Popen([sys.executable, __file__, "child"])
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
time.sleep(600)
"""


@pytest.mark.skipif(not priority.can_restore(), reason="this user may not raise a priority")
def test_threads_of_children_get_the_full_priority_back(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(CHILD)
    process = subprocess.Popen([sys.executable, str(program)], start_new_session=True)
    parent = psutil.Process(process.pid)
    priority.lower(process.pid)
    try:
        end_s = time.monotonic() + 60
        while len(family := [parent, *parent.children()]) < 2 or any(
            member.num_threads() < 2 for member in family
        ):
            assert time.monotonic() < end_s
            time.sleep(0.05)
        assert classes(family) == {os.SCHED_IDLE}
        priority.restore(process.pid)
        assert classes(family) == {os.SCHED_OTHER}
    finally:
        for member in [*parent.children(), parent]:
            member.kill()
        process.wait()
    priority.restore(process.pid)


def classes(family: list[psutil.Process]) -> set[int]:
    return {os.sched_getscheduler(thread.id) for member in family for thread in member.threads()}


@pytest.mark.skipif(not priority.can_restore(), reason="this user may not raise a priority")
def test_a_session_of_its_own_gets_the_lowest_niceness_where_the_kernel_has_autogroups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enabled = tmp_path / "sched_autogroup_enabled"
    enabled.write_text("1\n")
    monkeypatch.setattr(priority, "_AUTOGROUPS", enabled)
    program = tmp_path / "program.py"
    program.write_text(CHILD)
    process = subprocess.Popen([sys.executable, str(program)], start_new_session=True)
    group, group_of_self = Path(f"/proc/{process.pid}/autogroup"), Path("/proc/self/autogroup")
    try:
        if not group.exists():
            pytest.skip("this kernel has no autogroups")
        group_before = group_of_self.read_text()
        priority.lower(process.pid)
        assert group.read_text().split()[-1] == "19"
        priority.restore(process.pid)
        assert group.read_text().split()[-1] == "0"
        assert group_of_self.read_text() == group_before
    finally:
        for member in [*psutil.Process(process.pid).children(), psutil.Process(process.pid)]:
            member.kill()
        process.wait()


async def test_a_process_gives_way_from_its_start_with_its_threads_and_children(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(CHILD)
    process = Process("one", [sys.executable, str(program)], log=tmp_path / "log", niceness=5)
    await process.start()
    try:
        parent = psutil.Process(process.pid)
        async with asyncio.timeout(60):
            while not parent.children() or any(
                member.num_threads() < 2 for member in (parent, *parent.children())
            ):
                await asyncio.sleep(0.05)
        threads = [thread.id for member in (parent, *parent.children()) for thread in member.threads()]
        assert {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads} == {5}
        if priority._AUTOGROUPS.exists() and priority._AUTOGROUPS.read_text().strip() == "1":
            assert Path(f"/proc/{process.pid}/autogroup").read_text().split()[-1] == "5"
    finally:
        await process.kill()
