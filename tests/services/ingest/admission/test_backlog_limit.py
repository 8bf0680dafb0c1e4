"""Ingest accepts what an overloaded stage completes, and everything when no stage is overloaded."""

from collections import deque

import pytest

from hifi.delivery.stage_lag import StageLag, StageReading
from hifi_ingest.admission.backlog_limit import BacklogLimit

READ_S = 0.5


class Simulation:
    """Senders, ingest's limit, and one stage that completes a number of events a second."""

    def __init__(self, limit: BacklogLimit, share: float = 1.0) -> None:
        self.limit = limit
        self.share = share
        """Share of the events that this process accepts."""
        self.stage = StageLag("enrich", 5)
        self.now_s = 1000.0
        self.end = self.completed = 0.0
        self.accepted: deque[tuple[float, int]] = deque()

    def run(self, offered_per_s: int, completed_per_s: int, seconds: float) -> tuple[float, int, float]:
        """Events a second that this process accepted, events refused, and the largest lag that was read."""
        accepted_before, refused_count, worst_s, step_s = self.limit.accepted, 0, 0.0, 0.01
        end_s, read_s = self.now_s + seconds, self.now_s
        while self.now_s < end_s:
            self.now_s += step_s
            own_events = round(offered_per_s * self.share * step_s)
            self.end += offered_per_s * (1 - self.share) * step_s
            if self.limit.wait_s(self.now_s, "a") == 0:
                self.limit.take(self.now_s, "a", own_events)
                self.end += own_events
            else:
                refused_count += own_events
            self.completed = min(self.end, self.completed + completed_per_s * step_s)
            if self.now_s >= read_s:
                read_s += READ_S
                worst_s = max(worst_s, self.read())
        return (self.limit.accepted - accepted_before) / seconds, refused_count, worst_s

    def read(self) -> float:
        self.stage.add(self.now_s, {0: int(self.end)}, {0: int(self.completed)})
        self.accepted.append((self.now_s, self.limit.accepted))
        reading = self.stage.read()
        if reading is None:
            return 0.0
        while self.accepted[0][0] < self.now_s - reading.span_s:
            self.accepted.popleft()
        self.limit.update([reading], self.limit.accepted - self.accepted[0][1])
        return reading.lag_s


def test_under_twice_the_load_the_stage_is_used_fully_and_its_lag_stays_within_the_bound() -> None:
    simulation = Simulation(BacklogLimit())
    simulation.run(2000, 1000, 60)
    per_s, refused_count, worst_s = simulation.run(2000, 1000, 60)
    assert per_s == pytest.approx(1000, rel=0.1)
    assert refused_count / 60 == pytest.approx(1000, rel=0.1)
    assert worst_s < 5


def test_a_process_refuses_no_more_than_its_share() -> None:
    simulation = Simulation(BacklogLimit(), 0.5)
    simulation.run(1400, 1000, 60)
    assert simulation.limit.rate_per_s is not None
    assert 200 < simulation.run(1400, 1000, 60)[0] < 600, "the other process does not limit itself"


def test_a_burst_of_four_seconds_of_work_is_accepted() -> None:
    simulation = Simulation(BacklogLimit())
    simulation.run(500, 1000, 20)
    assert simulation.run(3000, 1000, 2)[1] == 0
    assert simulation.run(500, 1000, 20)[1] == 0
    assert simulation.limit.rate_per_s is None


def test_a_stage_that_is_down_and_then_catches_up_refuses_nothing() -> None:
    simulation = Simulation(BacklogLimit())
    simulation.run(500, 1000, 20)
    assert simulation.run(500, 0, 120)[1] == 0
    assert simulation.run(500, 1000, 150)[1] == 0
    assert simulation.limit.rate_per_s is None


def test_after_an_overload_the_limit_is_removed() -> None:
    simulation = Simulation(BacklogLimit())
    limited_states = []
    for rate in (2000, 500):
        simulation.run(rate, 1000, 60)
        limited_states.append(simulation.limit.rate_per_s is not None)
    assert limited_states == [True, False]
    assert simulation.run(500, 1000, 20)[1] == 0


def test_a_process_without_traffic_is_not_locked_out() -> None:
    simulation = Simulation(BacklogLimit(), 0.0)
    simulation.run(2000, 1000, 60)
    assert simulation.limit.rate_per_s is not None
    assert simulation.limit.rate_per_s >= 1000 * 0.05 * 0.8 * 0.9


def test_when_the_stages_are_unknown_everything_is_accepted() -> None:
    simulation = Simulation(BacklogLimit())
    simulation.run(2000, 1000, 60)
    simulation.limit.remove()
    assert simulation.limit.wait_s(simulation.now_s, "a") == 0


def test_a_greedy_pipe_is_limited_first() -> None:
    limit = BacklogLimit()
    reading = StageReading("enrich", 5, 6, 6000, 1250 * 6, 6, steady=True)
    accepted_counts = {"greedy": 0, "small": 0, "smaller": 0}
    refused_counts = dict.fromkeys(accepted_counts, 0)
    for step in range(4000):
        now_s = step / 200
        if step % 100 == 0:
            limit.update([reading._replace(arrived=8000)], 8000)
        offers = {"greedy": 20, "small": step % 2, "smaller": step % 4 == 0}
        for pipe, events in offers.items():
            if not events:
                continue
            if limit.wait_s(now_s, pipe) == 0:
                limit.take(now_s, pipe, int(events))
                accepted_counts[pipe] += int(events)
            else:
                refused_counts[pipe] += 1
    assert refused_counts["small"] == refused_counts["smaller"] == 0
    assert refused_counts["greedy"] > 0
    assert sum(accepted_counts.values()) / 20 == pytest.approx(1000, rel=0.1), (
        "the capacity is used and not exceeded"
    )
