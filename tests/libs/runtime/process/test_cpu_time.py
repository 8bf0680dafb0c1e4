"""The time that a thread waits for a CPU."""

import os
import threading
from pathlib import Path

import pytest

from hifi.runtime.process.cpu_time import thread_cpu_time


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell")
def test_a_thread_that_shares_its_core_with_many_sees_that_it_waits() -> None:
    cores, thread = os.sched_getaffinity(0), threading.get_native_id()
    busy_processes = [
        os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", "while :; do :; done")  # noqa: S606 - no input
        for _ in range(3)
    ]
    try:
        single_core = {min(cores)}
        for process in busy_processes:
            os.sched_setaffinity(process, single_core)
        os.sched_setaffinity(thread, single_core)
        time_before = thread_cpu_time()
        while (time_after := thread_cpu_time()).ran_ns - time_before.ran_ns < 50_000_000:
            pass
        assert time_after.waited_ns - time_before.waited_ns > time_after.ran_ns - time_before.ran_ns
    finally:
        os.sched_setaffinity(thread, cores)
        for process in busy_processes:
            os.kill(process, 9)
            os.waitpid(process, 0)
