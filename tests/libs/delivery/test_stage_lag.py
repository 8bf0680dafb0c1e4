"""The lag of a stage in seconds, from offsets."""

import pytest

from hifi.delivery.stage_lag import OutputProgress, StageLag


def lag(*samples: tuple[float, dict[int, int], dict[int, int]]) -> StageLag:
    stage_lag = StageLag("enrich", 5)
    for sample in samples:
        stage_lag.add(*sample)
    return stage_lag


def test_a_stage_is_as_late_as_its_first_open_record_is_old() -> None:
    stage_lag = lag(
        (100, {0: 1000}, {0: 1000}),
        (102, {0: 2000}, {0: 1000}),
        (104, {0: 4000}, {0: 1500}),
    ).read()
    assert stage_lag is not None
    assert stage_lag.lag_s == pytest.approx(3, abs=0.01), "offset 1500 arrived between 100 and 102"
    assert (stage_lag.arrived, stage_lag.completed, stage_lag.span_s) == (3000, 500, 4)


def test_the_least_late_partition_counts_so_that_one_that_waits_refuses_nothing() -> None:
    stuck = [(100 + t, {0: 10 * t, 1: 10 * t}, {0: 0, 1: 10 * t}) for t in range(60)]
    stage_lag = lag(*stuck).read()
    assert stage_lag is not None
    assert stage_lag.lag_s == 0
    samples = [(100 + t, {0: 10 * t, 1: 10 * t, 2: 0}, {0: 5 * t, 1: 9 * t}) for t in range(40)]
    stage_lag = lag(*samples).read()
    assert stage_lag is not None
    assert stage_lag.lag_s == pytest.approx(3.9, abs=0.1), "one without events does not count"


def test_a_stage_that_is_up_to_date_or_has_never_run_is_not_late() -> None:
    idle = lag(*[(100 + t, {0: 7}, {0: 7}) for t in range(3)]).read()
    never = lag(*[(100 + t, {0: 7 + t}, {}) for t in range(3)]).read()
    assert idle is not None
    assert never is not None
    assert (idle.lag_s, never.lag_s, never.completed) == (0, 0, 0)
    assert lag((100, {0: 7}, {0: 7})).read() is None


def test_a_topic_that_was_created_again_starts_anew() -> None:
    stage_lag = lag((100, {0: 1000}, {0: 1000}), (101, {0: 5}, {0: 0}), (102, {0: 6}, {0: 6})).read()
    assert stage_lag is not None
    assert stage_lag.lag_s == 0


def test_what_the_output_grew_by_since_the_last_commit_is_completed() -> None:
    progress = OutputProgress()
    assert progress.completed({0: 100}, {0: 50}, {0: 1000}) == {0: 50}
    assert progress.completed({0: 200}, {0: 50}, {0: 1090}) == {0: 140}
    assert progress.completed({0: 200}, {0: 50}, {0: 1900}) == {0: 200}, "copies count at most to the end"
    assert progress.completed({0: 300}, {0: 210}, {0: 1950}) == {0: 250}
    assert progress.completed({0: 300}, {0: 210}, {0: 1980}) == {0: 280}


def test_a_commit_takes_nothing_back_that_was_completed_after_it() -> None:
    progress = OutputProgress()
    end_offsets = {0: 100_000}
    progress.completed(end_offsets, {0: 0}, {0: 0})
    for second in range(1, 30):
        assert progress.completed(end_offsets, {0: 0}, {0: 1000 * second}) == {0: 1000 * second}
    assert progress.completed(end_offsets, {0: 29_400}, {0: 30_000}) == {0: 30_000}, (
        "600 of them after the commit"
    )


def test_a_commit_corrects_what_the_output_does_not_show() -> None:
    end_offsets = {0: 100_000}
    dead_letters = OutputProgress()
    dead_letters.completed(end_offsets, {0: 0}, {0: 0})
    assert dead_letters.completed(end_offsets, {0: 0}, {0: 900}) == {0: 900}
    assert dead_letters.completed(end_offsets, {0: 1000}, {0: 910}) == {0: 1000}, "100 became dead letters"
    repeating_output = OutputProgress()
    repeating_output.completed(end_offsets, {0: 0}, {0: 0})
    repeating_output.completed(end_offsets, {0: 0}, {0: 5000})
    repeating_output.completed(end_offsets, {0: 0}, {0: 5010})
    assert repeating_output.completed(end_offsets, {0: 2500}, {0: 5020}) == {0: 2520}
