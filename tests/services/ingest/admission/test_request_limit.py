"""Requests are refused while those in progress take longer than the bound, and let in again afterwards."""

import pytest

from hifi_ingest.admission.request_limit import TICK_S, RequestLimit

BOUND_S = 0.5
MOST = 4096


class Simulation:
    """A server that answers a fixed number of requests a second, in their order."""

    def __init__(self, limit: RequestLimit, per_s: float, *, kafka_s: float = 0.01) -> None:
        self.limit = limit
        self.per_s = per_s
        self.kafka_s = kafka_s
        self.now_s = 1000.0
        self.free_s = self.now_s
        self.waiting: list[tuple[float, float]] = []
        limit.tick(self.now_s)

    def run(self, offered_per_s: float, seconds: float) -> tuple[int, int, list[float]]:
        """Number of requests accepted and refused, and the duration of each accepted one in seconds."""
        accepted_count, refused_count, durations_s = 0, 0, []
        end_s = self.now_s + seconds
        next_tick_s, step_s = self.now_s + TICK_S, 1 / offered_per_s
        while self.now_s < end_s:
            self.now_s += step_s
            while self.waiting and self.waiting[0][1] <= self.now_s:
                request_start_s, request_end_s = self.waiting.pop(0)
                self.limit.end("a", request_end_s - request_start_s)
                durations_s.append(request_end_s - request_start_s)
            if self.now_s >= next_tick_s:
                self.limit.tick(self.now_s)
                next_tick_s = self.now_s + TICK_S
            if self.limit.refuses(self.now_s, "a"):
                refused_count += 1
                continue
            self.limit.begin("a")
            accepted_count += 1
            self.free_s = max(self.free_s, self.now_s) + 1 / self.per_s
            self.waiting.append((self.now_s, self.free_s + self.kafka_s))
        return accepted_count, refused_count, durations_s


def test_twice_the_capacity_is_refused_by_half_and_answers_stay_within_about_the_bound() -> None:
    simulation = Simulation(RequestLimit(BOUND_S, MOST), 1000)
    simulation.run(2000, 10)
    accepted_count, refused_count, durations_s = simulation.run(2000, 20)
    assert accepted_count / 20 == pytest.approx(1000, rel=0.05), "the capacity is used"
    assert refused_count / 20 == pytest.approx(1000, rel=0.05)
    assert max(durations_s) < 2 * BOUND_S


def test_a_burst_that_is_answered_within_the_bound_is_not_refused() -> None:
    simulation = Simulation(RequestLimit(BOUND_S, MOST), 1000)
    for _ in range(20):
        assert simulation.run(2000, BOUND_S * 0.9)[1] == 0
        assert simulation.run(100, 1)[1] == 0


def test_everything_is_accepted_again_after_an_overload() -> None:
    simulation = Simulation(RequestLimit(BOUND_S, MOST), 1000)
    limited_states = []
    for rate, seconds in ((4000, 20), (500, 15)):
        simulation.run(rate, seconds)
        limited_states.append(simulation.limit.limited)
    assert limited_states == [True, False]
    assert simulation.run(900, 10)[1] == 0


def test_a_slow_kafka_leaves_enough_requests_for_the_usual_throughput() -> None:
    simulation = Simulation(RequestLimit(BOUND_S, MOST), 10_000, kafka_s=0.6)
    simulation.run(200, 20)
    accepted_count, _, _ = simulation.run(200, 20)
    assert accepted_count / 20 >= 64 / 0.6 * 0.9


def test_a_turn_of_the_event_loop_that_takes_longer_than_the_bound_refuses_what_waited_in_it() -> None:
    limit = RequestLimit(BOUND_S, MOST)
    limit.tick(10.0)
    assert not limit.refuses(10.0 + TICK_S + BOUND_S - 0.01, "a")
    assert limit.refuses(10.0 + TICK_S + BOUND_S + 0.01, "a")
    limit.tick(10.0 + TICK_S + BOUND_S + 0.02)
    assert not limit.refuses(10.0 + TICK_S + BOUND_S + 0.03, "a")


def test_without_a_bound_nothing_is_refused() -> None:
    simulation = Simulation(RequestLimit(0, MOST), 100)
    assert simulation.run(1000, 10)[1] == 0


def test_a_flood_is_limited_within_a_second_to_what_is_answered_within_the_bound() -> None:
    simulation = Simulation(RequestLimit(BOUND_S, MOST), 1000)
    simulation.run(20_000, 1.5)
    assert simulation.limit.limited
    *_, durations_s = simulation.run(20_000, 20)
    assert max(durations_s[len(durations_s) // 4 :]) < 1.3 * BOUND_S


def test_a_time_without_answers_changes_nothing() -> None:
    simulation = Simulation(RequestLimit(BOUND_S, MOST), 1000)
    simulation.run(4000, 20)
    limit_before = simulation.limit.limit
    for tick in range(20):
        simulation.limit.tick(simulation.now_s + tick * TICK_S)
    assert simulation.limit.in_progress
    assert simulation.limit.limit <= limit_before * 1.1, "one period may have had answers"


def test_errors_do_not_count_as_answers() -> None:
    limit = RequestLimit(BOUND_S, MOST)
    for tick in range(100):
        limit.begin("a")
        limit.end("a", None)
        limit.tick(10 + tick * TICK_S)
    assert not limit.limited
    assert limit.in_progress == 0


def test_a_pipe_below_its_share_is_let_in_while_a_greedy_one_is_refused() -> None:
    limit = RequestLimit(BOUND_S, 100)
    limit.tick(10.0)
    for _ in range(100):
        assert not limit.refuses(10.0, "greedy")
        limit.begin("greedy")
    assert limit.refuses(10.0, "greedy")
    admitted_count = 0
    while not limit.refuses(10.0, "small"):
        limit.begin("small")
        admitted_count += 1
    assert admitted_count == 50
    for _ in range(60):
        limit.end("greedy", 0.01)
    assert not limit.refuses(10.0, "greedy")
    for _ in range(10):
        limit.begin("greedy")
    assert limit.refuses(10.0, "greedy")
    assert limit.refuses(10.0, "small"), "it has its share"
