"""The test that compares a version with the one before: its errors, measured by simulation with fixed seeds."""

import random

import pytest

from hifi.control.sequential_test import Outcomes, SequentialTest

ERROR = 0.005
LOOK = 40
"""Events between two looks."""


def detected_after(before: float, now: float, *, share: float, seed: int, limit: int = 2000) -> int | None:
    """Events of the candidate until it is called worse; None: not within `limit`."""
    rng = random.Random(seed)
    test = SequentialTest(ERROR)
    while test.candidate.events < limit:
        events = sum(rng.random() < share for _ in range(LOOK))
        candidate = Outcomes(events, sum(rng.random() < now for _ in range(events)))
        baseline = Outcomes(LOOK - events, sum(rng.random() < before for _ in range(LOOK - events)))
        if test.look(candidate, baseline):
            return test.candidate.events
    return None


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_two_percent_more_failures_are_found_within_2000_events_in_19_of_20_runs(share):
    detections = [detected_after(0.001, 0.021, share=share, seed=seed) for seed in range(20)]
    assert sum(detection is not None for detection in detections) >= 19


@pytest.mark.parametrize(("rate", "share"), [(0.0, 0.1), (0.02, 0.1), (0.02, 0.5), (0.3, 0.5)])
@pytest.mark.more
def test_equal_versions_are_called_worse_at_most_once_in_50_runs(rate, share):
    detections = [detected_after(rate, rate, share=share, seed=seed, limit=5000) for seed in range(50)]
    assert sum(detection is not None for detection in detections) <= 1


def test_a_better_version_is_never_called_worse():
    assert [detected_after(0.05, 0.01, share=0.5, seed=seed) for seed in range(20)] == [None] * 20


def test_a_bad_hour_of_both_is_no_evidence():
    rng = random.Random(7)
    test = SequentialTest(ERROR)
    for look in range(200):
        rate = 0.6 if 50 <= look < 90 else 0.001
        worse = test.look(
            Outcomes(10, sum(rng.random() < rate for _ in range(10))),
            Outcomes(30, sum(rng.random() < rate for _ in range(30))),
        )
        assert not worse


def test_with_all_the_traffic_a_candidate_is_compared_with_what_the_baseline_did_before():
    test = SequentialTest(ERROR)
    test.look(Outcomes(500, 1), Outcomes(2000, 2))
    assert not test.look(Outcomes(500, 1), Outcomes())
    assert test.look(Outcomes(500, 25), Outcomes())


def test_without_any_baseline_nothing_is_decided():
    test = SequentialTest(ERROR)
    assert not test.look(Outcomes(1000, 1000), Outcomes())


def test_looks_where_all_or_none_failed_say_nothing():
    test = SequentialTest(ERROR)
    test.look(Outcomes(100, 0), Outcomes(100, 0))
    test.look(Outcomes(100, 100), Outcomes(100, 100))
    assert test.log_evidence == pytest.approx(0)


def test_impossible_outcomes_are_refused():
    with pytest.raises(ValueError, match="3 failures of 2 events"):
        Outcomes(2, 3)
