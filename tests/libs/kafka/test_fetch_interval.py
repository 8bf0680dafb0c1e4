"""The interval between requests to Kafka follows CPU pressure."""

import pytest

from hifi.kafka.fetch_interval import LONGEST_S, SHORTEST_S, FetchInterval
from hifi.process.cpu_time import CpuTime


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
            self.interval.seconds  # noqa: B018 - takes a sample

    @property
    def interval(self) -> FetchInterval:
        if not hasattr(self, "_interval"):
            self._interval = FetchInterval(lambda: CpuTime(self.ran, self.waited), lambda: self.now_s)
        return self._interval


def test_it_gathers_longer_while_cores_are_short_and_not_after() -> None:
    core = Core()
    assert core.interval.seconds == SHORTEST_S
    core.share(0.2, 10)
    assert core.interval.seconds == SHORTEST_S
    core.share(0.45, 10)
    between = core.interval.seconds
    assert SHORTEST_S < between < LONGEST_S
    core.share(0.9, 10)
    assert core.interval.seconds == LONGEST_S
    core.share(0.45, 10)
    assert core.interval.seconds == pytest.approx(between, rel=0.01)
    core.share(0.1, 10)
    assert core.interval.seconds == SHORTEST_S


def test_a_moment_alone_changes_little() -> None:
    core = Core()
    core.share(0.2, 10)
    core.share(1.0, 0.25)
    assert core.interval.seconds < LONGEST_S / 4


@pytest.mark.parametrize("error", [FileNotFoundError(), ValueError()])
def test_where_nobody_knows_it_stays_the_shortest(error: Exception) -> None:
    def read() -> CpuTime:
        raise error

    assert FetchInterval(read).seconds == SHORTEST_S
