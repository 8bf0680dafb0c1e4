"""Loads at which a service grows, shrinks and keeps its number of instances."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hifi_infra.autoscaler.policy import Policy, Sample, decide

POLICY = Policy(
    min_instances=1,
    max_instances=6,
    cpu_high=0.7,
    backlog_high=1000,
    shrink_ratio=0.7,
    up_after_s=10,
    down_after_s=60,
)
STEP_S = 5.0


def steady(instances: int, cpu: float | None, backlog: int | None, seconds: float) -> list[Sample]:
    return [Sample(step * STEP_S, instances, cpu, backlog) for step in range(int(seconds / STEP_S) + 1)]


def test_high_cpu_grows_a_service_to_the_size_it_needs() -> None:
    assert decide(POLICY, steady(2, 1.0, 0, 10)).instances == 3


def test_a_high_backlog_grows_a_service_whose_cpu_is_low() -> None:
    assert decide(POLICY, steady(2, 0.05, 3500, 10)).instances == 4


def test_a_service_grows_to_its_double_at_most_and_never_above_its_bound() -> None:
    assert decide(POLICY, steady(1, 0.1, 90_000, 10)).instances == 2
    assert decide(POLICY, steady(4, 0.1, 90_000, 10)).instances == 6


def test_a_short_peak_changes_nothing() -> None:
    quiet = steady(2, 0.5, 0, 30)
    assert decide(POLICY, [*quiet, Sample(35, 2, 2.0, 50_000)]).instances == 2


def test_a_service_that_is_too_large_loses_one_at_a_time_and_only_after_a_while() -> None:
    assert decide(POLICY, steady(4, 0.1, 0, 55)).instances == 4
    assert decide(POLICY, steady(4, 0.1, 0, 60)).instances == 3


def test_a_change_of_size_begins_a_new_wait() -> None:
    samples_before = steady(5, 0.1, 0, 100)
    samples_after = [Sample(100 + step * STEP_S, 4, 0.1, 0) for step in range(1, 6)]
    assert decide(POLICY, [*samples_before, *samples_after]).instances == 4


def test_missing_metrics_change_nothing() -> None:
    idle = steady(4, 0.01, 0, 55)
    decision = decide(POLICY, [*idle, Sample(60, 4, None, None)])
    assert decision.instances == 4
    assert "missing" in decision.reason


def test_one_missing_metric_may_grow_a_service_by_the_other_but_never_shrinks_it() -> None:
    assert decide(POLICY, steady(2, None, 5000, 10)).instances == 4
    assert decide(POLICY, steady(2, 1.4, None, 10)).instances == 4
    assert decide(POLICY, steady(4, None, 0, 200)).instances == 4
    assert decide(POLICY, steady(4, 0.01, None, 200)).instances == 4


def test_a_metric_that_was_away_for_a_moment_begins_the_wait_to_shrink_again() -> None:
    history = steady(4, 0.01, 0, 100)
    history[-3] = Sample(history[-3].at_s, 4, None, None)
    assert decide(POLICY, history).instances == 4


def test_bounds_hold_without_any_metric() -> None:
    assert decide(POLICY, []).instances == 1
    assert decide(Policy(min_instances=3), [Sample(0, 1, None, None)]).instances == 3
    assert decide(Policy(max_instances=2), [Sample(0, 5, None, None)]).instances == 4


loads = st.floats(0.01, 8, allow_nan=False)


@given(load=loads, start=st.integers(1, 6))
def test_a_steady_load_settles_and_never_swings(load: float, start: int) -> None:
    """`load`: cores that the whole service uses."""
    history: list[Sample] = []
    count, sizes = start, []
    for step in range(200):
        history.append(Sample(step * STEP_S, count, load / count, 0))
        count = decide(POLICY, history).instances
        sizes.append(count)
    assert len(set(sizes[-50:])) == 1
    growths = [a < b for a, b in pairwise(sizes) if a != b]
    assert len(set(growths)) <= 1, "it grew and shrank at the same load"
    assert sizes[-1] == POLICY.max_instances or load / sizes[-1] <= POLICY.cpu_high + 1e-6


@given(
    samples=st.lists(
        st.tuples(
            st.integers(1, 8), st.none() | st.floats(0, 4, allow_nan=False), st.none() | st.integers(0, 10**6)
        )
    )
)
def test_no_history_leads_out_of_the_bounds_or_shrinks_by_more_than_one(
    samples: list[tuple[int, float | None, int | None]],
) -> None:
    history = [Sample(index * STEP_S, *sample) for index, sample in enumerate(samples)]
    decided = decide(POLICY, history).instances
    now = history[-1].instances if history else POLICY.min_instances
    assert decided >= min(now, POLICY.min_instances)
    assert decided >= now - 1
    assert decided <= max(POLICY.max_instances, now - 1)


EGEST = replace(POLICY, has_lanes=True)


def waiting(instances: int, cpu: float, occupancy: float | None, seconds: float) -> list[Sample]:
    return [Sample(step * STEP_S, instances, cpu, 0, occupancy) for step in range(int(seconds / STEP_S) + 1)]


def test_full_lanes_grow_a_service_whose_cpu_stays_low_because_it_waits() -> None:
    """The load doubles again and again; destinations answer slowly, so CPU reaches a plateau far below its bound."""
    plateau = [min(0.3, 0.1 * load) for load in (1, 2, 4, 8)]
    occupancy = [min(1.0, 0.25 * load) for load in (1, 2, 4, 8)]
    counts_by_cpu = [decide(POLICY, steady(2, cpu, 0, 10)).instances for cpu in plateau]
    counts_by_lanes = [
        decide(EGEST, waiting(2, cpu, lane_share, 10)).instances
        for cpu, lane_share in zip(plateau, occupancy, strict=True)
    ]
    assert counts_by_cpu == [2, 2, 2, 2]
    assert counts_by_lanes == [2, 2, 3, 3]


def test_a_service_with_full_lanes_keeps_its_instances() -> None:
    assert decide(EGEST, waiting(2, 0.05, 0.5, 90)).instances == 2
    assert decide(EGEST, waiting(2, 0.05, 0.2, 90)).instances == 1


def test_an_unknown_occupancy_holds_the_footprint() -> None:
    assert decide(EGEST, waiting(2, 0.05, None, 90)).instances == 2
    assert decide(POLICY, waiting(2, 0.05, None, 90)).instances == 1
