"""The interval between requests to Kafka follows CPU pressure."""

import pytest

from hifi.kafka.fetch_interval import AFTER_TICK_S, LONGEST_S, SHORTEST_S, FetchInterval
from hifi.runtime.process.cpu_time import CpuTime


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
    interval_s = core.interval.seconds
    assert SHORTEST_S < interval_s < LONGEST_S
    core.share(0.9, 10)
    assert core.interval.seconds == LONGEST_S
    core.share(0.45, 10)
    assert core.interval.seconds == pytest.approx(interval_s, rel=0.01)
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


@pytest.mark.parametrize("at_s", [1000.0, 1000.003, 1000.0155, 1000.0199, 1000.0333])
def test_processes_tick_together_whenever_they_ask(at_s: float) -> None:
    def next_tick_s(least_s: float, after_s: float) -> float:
        idle = FetchInterval(lambda: CpuTime(0, 0), lambda: 0.0, lambda: at_s)
        wait_s = idle.until_tick_s(least_s, after_s)
        step_s = max(least_s, SHORTEST_S)
        assert step_s / 4 <= wait_s <= step_s * 5 / 4
        return at_s + wait_s - after_s

    produced_s, consumed_s = next_tick_s(0, 0), next_tick_s(2 * SHORTEST_S, AFTER_TICK_S)
    assert produced_s / SHORTEST_S == pytest.approx(round(produced_s / SHORTEST_S), abs=1e-6)
    assert consumed_s / (2 * SHORTEST_S) == pytest.approx(round(consumed_s / (2 * SHORTEST_S)), abs=1e-6)


def test_ticks_are_as_rare_as_the_interval_when_cores_are_short() -> None:
    core = Core()
    core.share(1.0, 10)
    assert LONGEST_S / 4 <= core.interval.until_tick_s() <= LONGEST_S * 5 / 4
    assert core.interval.until_tick_s(SHORTEST_S) >= LONGEST_S / 4
