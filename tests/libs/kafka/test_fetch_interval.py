"""How long records are gathered, by how short cores are."""

import os
import threading
from pathlib import Path

import pytest

from hifi.kafka.fetch_interval import LONGEST_S, SHORTEST_S, FetchInterval, thread_cpu_times


class Core:
    """A clock, and what a process got of a core."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ran = self.waited = 0

    def share(self, waiting: float, seconds: float) -> None:
        for _ in range(round(seconds * 4)):
            self.now_s += 0.25
            self.ran += round((1 - waiting) * 1e8)
            self.waited += round(waiting * 1e8)
            self.pace.seconds  # noqa: B018 - takes a sample

    @property
    def pace(self) -> FetchInterval:
        if not hasattr(self, "_pace"):
            self._pace = FetchInterval(lambda: (self.ran, self.waited), lambda: self.now_s)
        return self._pace


def test_it_gathers_longer_while_cores_are_short_and_not_after() -> None:
    core = Core()
    assert core.pace.seconds == SHORTEST_S
    core.share(0.2, 10)
    assert core.pace.seconds == SHORTEST_S
    core.share(0.45, 10)
    between = core.pace.seconds
    assert SHORTEST_S < between < LONGEST_S
    core.share(0.9, 10)
    assert core.pace.seconds == LONGEST_S
    core.share(0.45, 10)
    assert core.pace.seconds == pytest.approx(between, rel=0.01)
    core.share(0.1, 10)
    assert core.pace.seconds == SHORTEST_S


def test_a_moment_alone_changes_little() -> None:
    core = Core()
    core.share(0.2, 10)
    core.share(1.0, 0.25)
    assert core.pace.seconds < LONGEST_S / 4


@pytest.mark.parametrize("error", [FileNotFoundError(), ValueError()])
def test_where_nobody_knows_it_stays_the_shortest(error: Exception) -> None:
    def read() -> tuple[int, int]:
        raise error

    assert FetchInterval(read).seconds == SHORTEST_S


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell")
def test_a_thread_that_shares_its_core_with_many_sees_that_it_waits() -> None:
    cores, own = os.sched_getaffinity(0), threading.get_native_id()
    others = [os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", "while :; do :; done") for _ in range(3)]
    try:
        one = {min(cores)}
        for process in others:
            os.sched_setaffinity(process, one)
        os.sched_setaffinity(own, one)
        before = thread_cpu_times()
        while (after := thread_cpu_times())[0] - before[0] < 50_000_000:
            pass
        assert after[1] - before[1] > after[0] - before[0]
    finally:
        os.sched_setaffinity(own, cores)
        for process in others:
            os.kill(process, 9)
            os.waitpid(process, 0)
