"""The file of a step with `each` or `first`, and the results of its events."""

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hifi.pipe.sources.step import StepSource
from hifi.record.step_account import Tally
from hifi.spark.step_sql import parts
from hifi_state.fold.event_file import EventFile
from hifi_state.fold.progress import Progress
from hifi_state.fold.results import ResultEvents
from hifi_state.fold.trailing_window import TrailingWindow, Values
from hifi_state.fold.window_row import FoldedEvent, WindowRow

KEY = '["A"]'
EACH = {"each": {"trailing": "10s"}, "fields": {"n": "count(*)", "spent": "sum(amount)"}}
FIRST = {"first": "10s"}


def step_of(kind: dict[str, Any], **keys: Any) -> StepSource:
    return StepSource.model_validate(
        {"kind": "step", "from": "payments", "key": {"card": "string"}, **kind, **keys}
    )


def open_file(path: Path, step: StepSource) -> EventFile:
    return EventFile(
        path, [part for aggregate in step.aggregates.values() for part in parts(aggregate, "bigint")], step
    )


def progress(number: int, emitted_ms: int | None = None) -> Progress:
    return Progress("d", "payments", number, {0: number}, emitted_ms=emitted_ms)


def row(time_ms: int, raw: int, *values: int, key: str = KEY) -> WindowRow:
    event = FoldedEvent(0, raw, f"e{raw}", f'[["ce_id","e{raw}"]]', f'{{"n":{raw}}}'.encode())
    return WindowRow(time_ms, time_ms + 1, key, 1, values, Tally(1, raw), event)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_the_total_of_a_trailing_window_is_that_of_the_events_that_it_has(
    moves: list[tuple[int, int]],
) -> None:
    window = TrailingWindow(lambda first, second: [*first, *second])
    now_ms = begin_ms = 0
    events: list[tuple[int, Values]] = []
    for number, (later_ms, length_ms) in enumerate(moves):
        now_ms += later_ms
        begin_ms = max(begin_ms, now_ms - length_ms)
        events.append((now_ms, [number]))
        window.enter(now_ms, [number])
        window.leave(begin_ms)
        expected = [value for end_ms, values in events if end_ms >= begin_ms for value in values]
        assert (window.total(), len(window)) == (expected, len(expected))


def test_each_event_has_the_parts_of_those_that_are_at_most_so_long_before_it(tmp_path: Path) -> None:
    step = step_of(EACH)
    file = open_file(tmp_path / "a.db", step)
    large = 2**63 - 1
    file.apply([row(0, 1, 1, large), row(10_000, 2, 1, large), row(10_000, 3, 1, 1)], progress(1))
    file.apply([row(10_001, 4, 1, 5), row(10_001, 5, 1, 7, key='["B"]')], progress(2))
    file.close()
    file = open_file(tmp_path / "a.db", step)
    assert [(due_row.start_ms, due_row.inputs, list(due_row.parts)) for due_row in file.due(11_000)] == [
        (-10_000, 1, [1, large]),
        (0, 3, [3, 2 * large + 1]),
        (0, 3, [3, 2 * large + 1]),
        (1, 3, [3, large + 6]),
        (1, 1, [1, 7]),
    ]
    file.apply([row(15_000, 6, 1, 100)], progress(3, emitted_ms=11_000))
    assert [(due_row.end_ms, list(due_row.parts)) for due_row in file.due(20_000)] == [
        (15_001, [4, large + 106])
    ]
    assert file.windows() == 5
    file.apply([], progress(4, emitted_ms=21_000))
    assert file.windows() == 1, "an event is dropped when no later result may need it"
    file.apply([], progress(5, emitted_ms=25_001))
    assert file.windows() == 0
    assert not list(file.due(None))


def test_an_event_passes_only_if_none_of_its_key_is_at_most_so_long_before_it(tmp_path: Path) -> None:
    file = open_file(tmp_path / "a.db", step_of(FIRST))
    rows = [row(0, 1), row(9_000, 3), row(0, 2), row(19_000, 4), row(500, 5, key='["B"]')]
    file.apply(rows, progress(1))
    assert [due_row.event for due_row in file.due(20_000)] == [rows[0].event, rows[4].event]
    assert file.without_row.events == 3
    assert file.outcomes == {"repeated": 3}
    file.apply([row(29_000, 6), row(10_501, 7, key='["B"]')], progress(2, emitted_ms=20_000))
    passed_rows = list(file.due(30_000))
    assert [due_row.event.raw for due_row in passed_rows if due_row.event] == []
    assert file.without_row.events == 1, "the one of B is before the time up to which all have results"
    file.apply([row(39_001, 8)], progress(3, emitted_ms=30_000))
    assert [due_row.event for due_row in file.due(40_000)] == [row(39_001, 8).event]


def test_data_is_kept_until_its_event_passes_or_not(tmp_path: Path) -> None:
    file = open_file(tmp_path / "a.db", step_of(FIRST))
    file.apply([row(8_000, 1), row(12_000, 2)], progress(1))
    file.apply([], progress(2, emitted_ms=10_000))
    file.close()
    kept = open_file(tmp_path / "a.db", step_of(FIRST))._database.execute("select raw, data from windows")
    assert list(kept) == [(1, None), (2, b'{"n":2}')]


def test_an_event_that_passes_keeps_its_attributes_and_data_but_for_a_type_that_is_declared() -> None:
    event = FoldedEvent(
        0, 7, "e7", '[["ce_id","e7"],["ce_type","paid"],["content-type","text/csv"]]', b"1,\xc3\xa9"
    )
    passing_row = WindowRow(1_500, 1_501, KEY, 1, [], Tally(1, 1), event)
    (passed,) = ResultEvents("cards", step_of(FIRST), []).of([passing_row])
    assert (passed.key, passed.data, passed.time_us, passed.position) == (
        b"A",
        b"1,\xc3\xa9",
        1_500_000,
        2 << 30,
    )
    attributes = [("ce_id", b"e7"), ("content-type", b"text/csv")]
    assert sorted(passed.headers) == sorted([*attributes, ("ce_type", b"paid")])
    (typed,) = ResultEvents("cards", step_of(FIRST, type="first"), []).of([passing_row])
    assert sorted(typed.headers) == sorted([*attributes, ("ce_type", b"first")])


def test_results_of_events_of_one_time_and_key_have_ids_of_their_own() -> None:
    step = step_of(EACH)
    rows = [row(1_500, raw, 2, 10) for raw in (7, 8)]
    results = list(ResultEvents("cards", step, ["bigint", "bigint"]).of(rows))
    assert len({dict(result.headers)["ce_id"] for result in results}) == 2
    assert [result.position - (2 << 30) for result in results] == [0, 1]
    assert [dict(result.headers)["ce_type"] for result in results] == [b"hifi.window"] * 2
    assert b'"event":"e7"' in (results[0].data or b"")
