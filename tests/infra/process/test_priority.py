"""A process that starts with lower priority gets the full one with all threads of its children."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hifi_infra.process import priority

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
    process = subprocess.Popen(priority.lowered([sys.executable, str(program)]))
    parent = psutil.Process(process.pid)
    own = psutil.Process().nice()
    try:
        end = time.monotonic() + 60
        while len(family := [parent, *parent.children()]) < 2 or any(one.num_threads() < 2 for one in family):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert {one.nice() for one in family} == {min(19, own + priority.STEPS)}
        priority.restore(process.pid)
        levels = {
            (Path(f"/proc/{one.pid}/task/{thread.id}/stat").read_text().rpartition(")")[2].split()[16])
            for one in family
            for thread in one.threads()
        }
        assert levels == {str(own)}
    finally:
        for one in [*parent.children(), parent]:
            one.kill()
        process.wait()
    priority.restore(process.pid)
