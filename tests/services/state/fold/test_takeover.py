"""Where a changed declaration of a step takes over."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hifi.pipe.sources.step import StepSource
from hifi_state.fold.progress import Judged, Progress, RangeSummary
from hifi_state.fold.takeover import Takeover, next_takeover

HORIZON_MS = 1_780_000_003_000
FIRST = Progress("kept", "flights", 0, {0: 0})


def step(kind: dict[str, Any]) -> StepSource:
    fields = {} if "first" in kind or "join" in kind else {"fields": {"n": "count(*)"}}
    joined = {"fields": {"n": "delay"}} if "join" in kind else {}
    return StepSource.model_validate(
        {"kind": "step", "from": "flights", "key": {"carrier": "string"}, **kind, **fields, **joined}
    )


_SECONDS = st.integers(1, 7200)
_KINDS = st.one_of(
    st.builds(lambda s: {"window": {"tumbling": s}}, _SECONDS),
    st.builds(lambda s, n: {"window": {"size": s * n, "every": s}}, _SECONDS, st.integers(1, 9)),
    st.builds(lambda s: {"window": {"session": s}}, _SECONDS),
    st.builds(lambda s: {"each": {"trailing": s}}, _SECONDS),
    st.builds(lambda s: {"first": s}, _SECONDS),
    st.builds(lambda s: {"join": {"with": "weather", "within": s}}, _SECONDS),
).map(step)


@given(kept=_KINDS, declared=_KINDS, horizon_s=st.integers(0, 2 * 10**9))
def test_it_is_at_the_end_of_a_window_from_which_all_results_are_complete(
    kept: StepSource, declared: StepSource, horizon_s: int
) -> None:
    horizon_ms = horizon_s * 1000
    at_ms, from_ms = next_takeover("declared", declared, kept, horizon_ms)[1:]
    every_ms = (kept.window and kept.window.every_ms) or 1000
    longest_ms = (declared.reach_ms or declared.length_ms) + declared.length_ms
    assert horizon_ms <= at_ms < horizon_ms + longest_ms + every_ms
    assert at_ms % every_ms == 0
    kept_from_ms = kept.needed_from_ms(horizon_ms)
    assert from_ms >= (horizon_ms if kept_from_ms is None else kept_from_ms), "others may not be in the log"
    assert declared.most_events is None or from_ms % declared.length_ms == 0
    if declared.window and declared.window.every_ms:
        next_end_ms = (at_ms // declared.window.every_ms + 1) * declared.window.every_ms
        assert from_ms <= next_end_ms - declared.window.size_ms


def test_a_field_that_changes_takes_over_with_the_next_window() -> None:
    minutes = step({"window": {"tumbling": "1m"}})
    assert next_takeover("declared", minutes, minutes, HORIZON_MS).at_ms == 1_780_000_020_000
    assert next_takeover("declared", minutes, minutes, 1_780_000_020_000).at_ms == 1_780_000_020_000


def test_the_horizon_stops_at_the_takeover_until_the_results_before_it_are_written() -> None:
    takeover = Takeover("declared", 60_000, 0)
    progress = replace(FIRST, horizon_ms=50_000, emitted_ms=50_000, takeover=takeover)
    before = progress.after(RangeSummary(highest_stamps={0: 60_000}), {0: 1}, None, 5_000)
    assert (before.horizon_ms, before.is_taken_over) == (55_000, False)
    at = before.after(RangeSummary(highest_stamps={0: 600_000}), {0: 2}, None, 5_000)
    assert (at.horizon_ms, at.has_due, at.is_taken_over) == (60_000, True, False)
    written = at.after(RangeSummary(), {0: 3}, None, 5_000)
    assert (written.horizon_ms, written.is_taken_over) == (60_000, True)
    assert Progress.decode(written.encode()) == written
    later = written.of_step("declared", ["flights"]).after(RangeSummary(), {0: 3}, None, 5_000)
    assert (later.step, later.takeover, later.horizon_ms) == ("declared", None, 595_000)
    assert later.since == written.offsets, "events before were judged by another declaration first"


def test_the_horizon_reaches_the_takeover_also_where_it_rises_in_long_steps() -> None:
    judged = tuple(Judged(0, offset, offset, offset) for offset in range(0, 500, 2))
    takeover = Takeover("declared", 51_000, 0)
    progress = replace(FIRST, horizon_ms=50_000, emitted_ms=50_000, judged=judged)
    marks = RangeSummary(highest_stamps={0: 60_000})
    assert progress.after(marks, {0: 1}, None, 5_000).horizon_ms == 50_000
    assert replace(progress, takeover=takeover).after(marks, {0: 1}, None, 5_000).horizon_ms == 51_000
