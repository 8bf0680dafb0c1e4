"""A mesh whose own process is killed leaves nothing running, and comes up again on the same folder."""

import subprocess
import sys
from pathlib import Path

import psutil

from hifi_infra.mesh import running
from hifi_infra.ports import free_port, is_free

HOLD = Path(__file__).parents[2] / "support" / "programs" / "hold_mesh.py"


def hold(data, port):
    process = subprocess.Popen([sys.executable, HOLD, data, str(port)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def family(pid):
    return psutil.Process(pid).children(recursive=True)


def test_killed_it_leaves_nothing_and_comes_up_again(tmp_path):
    data, port = tmp_path / "data", free_port()
    first_process = hold(data, port)
    children = family(first_process.pid)
    assert len(children) >= 6, "five services and a broker"
    first_process.kill()
    first_process.wait()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
    assert is_free(port)
    assert running.find(data) is None, "the lock went with the process"
    mesh_before = running.read(data)

    restarted = hold(data, port)
    try:
        now = running.find(data)
        assert now is not None
        assert mesh_before is not None
        assert now.kafka == mesh_before.kafka, "the same broker on the same port"
        assert now.pid == restarted.pid
    finally:
        restarted.terminate()
        _, alive = psutil.wait_procs(
            family(restarted.pid) if psutil.pid_exists(restarted.pid) else [], timeout=30
        )
        assert not alive
        restarted.wait()


def test_what_is_left_of_an_earlier_mesh_is_waited_for_and_then_ended(tmp_path):
    import asyncio

    stray_process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    created_s = psutil.Process(stray_process.pid).create_time()
    orphan = running.RunningInstance(
        service="egest", number=1, pid=stray_process.pid, created=created_s, port=1, log=tmp_path
    )
    foreign_instance = orphan.model_copy(update={"pid": psutil.Process().pid, "created": 1.0})
    state = running.RunningMesh(
        pid=1,
        created=1.0,
        stream="s",
        kafka="k",
        brokers=None,
        url="u",
        trigger="micro-batch",
        instances=[orphan, foreign_instance],
    )
    running.write(tmp_path, state)
    assert asyncio.run(running.wait_for_earlier(tmp_path, within_s=0.2)) == 1, (
        "a pid that another process has now is spared"
    )
    stray_process.wait(5)
