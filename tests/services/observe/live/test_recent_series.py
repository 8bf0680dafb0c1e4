"""The last five minutes of a pipe are kept second by second, of no more pipes than are looked at."""

from typing import Any

from hifi_observe.live.recent_series import ALWAYS_WATCHED, KEEP_S, WATCH_S, RecentSeries


def figures(rate_in: float, count: int = 1) -> dict[str, Any]:
    return {"rate_in": rate_in, "rate_out": 1.0, "lag": {"count": count, "p50": 2000, "p95": 5000}}


def test_the_last_five_minutes_are_kept() -> None:
    series = RecentSeries()
    for second in range(KEEP_S + 10):
        series.add("flights", second, figures(float(second)))
    columns = series.columns("flights")
    assert columns["at"] == list(range(10, KEEP_S + 10))
    assert columns["rate_in"][-1] == KEEP_S + 9
    assert columns["p95_ms"][-1] == 5


def test_a_second_without_deliveries_has_no_lag() -> None:
    series = RecentSeries()
    series.add("flights", 1, figures(0.0, count=0))
    assert series.columns("flights")["p95_ms"] == [None]


def test_few_pipes_are_all_sampled() -> None:
    pipe_names = [f"pipe-{number}" for number in range(ALWAYS_WATCHED)]
    assert RecentSeries().watched(pipe_names, 0) == pipe_names


def test_of_many_pipes_only_those_that_are_looked_at_are_sampled() -> None:
    series, pipe_names = RecentSeries(), [f"pipe-{number}" for number in range(ALWAYS_WATCHED + 1)]
    assert series.watched(pipe_names, 0) == []
    series.watch("pipe-3", 10)
    assert series.watched(pipe_names, 10) == ["pipe-3"]
    series.add("pipe-3", 10, figures(1.0))
    assert series.watched(pipe_names, 10 + WATCH_S) == []
    assert series.columns("pipe-3")["at"] == []
