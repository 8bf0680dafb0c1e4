"""The file of a step: parts are merged, and windows and progress change together."""

import math
from pathlib import Path

import orjson

from hifi.pipe.sources.step import StepSource, read_aggregate
from hifi.spark.step_sql import parts
from hifi_state.fold.progress import Progress
from hifi_state.fold.results import ResultEvents
from hifi_state.fold.window_file import WindowFile
from hifi_state.fold.window_row import WindowRow

PARTS = [
    part
    for text, kind in [
        ("count(*)", "bigint"),
        ("sum(n)", "bigint"),
        ("avg(x)", "double"),
        ("min(s)", "string"),
        ("max(n)", "int"),
    ]
    for part in parts(read_aggregate(text), kind)
]


def progress(number: int, emitted_ms: int | None = None) -> Progress:
    return Progress("d", "flights", number, {0: number}, emitted_ms=emitted_ms)


def row(end_ms: int, key: str, *values: object) -> WindowRow:
    return WindowRow(end_ms - 10, end_ms, key, 1, values)  # type: ignore[arg-type]


def test_parts_of_two_batches_are_merged_also_beyond_64_bits_and_with_nulls(tmp_path: Path) -> None:
    large = 2**63 - 1
    file = WindowFile(tmp_path / "a.db", PARTS, has_sessions=False)
    file.apply(
        [row(10, '["A"]', 1, large, 0.5, 1, "b", None), row(20, '["A"]', 1, None, None, 0, None, 3)],
        progress(1),
    )
    file.apply(
        [row(10, '["A"]', 2, large, 1.0, 2, "a", 7), row(10, '["B"]', 1, 1, 1.0, 1, "z", 1)], progress(2)
    )
    file.close()
    reopened = WindowFile(tmp_path / "a.db", PARTS, has_sessions=False)
    assert reopened.progress == progress(2)
    assert list(reopened.due(10)) == [
        WindowRow(0, 10, '["A"]', 2, [3, 2 * large, 1.5, 3, "a", 7]),
        WindowRow(0, 10, '["B"]', 1, [1, 1, 1.0, 1, "z", 1]),
    ]
    assert reopened.windows() == 3
    reopened.apply([], progress(3, emitted_ms=10))
    assert [window.end_ms for window in reopened.due(100)] == [20]


def test_a_sum_that_is_no_number_stays_so_and_its_mean_is_null(tmp_path: Path) -> None:
    fields = {"mean": "avg(x)", "total": "sum(x)"}
    source = {"kind": "step", "from": "flights", "key": {"carrier": "string"}, "fields": fields}
    step = StepSource.model_validate({**source, "window": {"tumbling": "1s"}})
    results = ResultEvents("delays", step, ["double", "double"])
    file = WindowFile(tmp_path / "a.db", results.parts, has_sessions=False)
    for number, total in enumerate((math.inf, -math.inf, 5.0), 1):
        file.apply([row(1000, '["A"]', total, 2, total)], progress(number))
    file.close()
    file = WindowFile(tmp_path / "a.db", results.parts, has_sessions=False)
    file.apply([row(1000, '["A"]', 5.0, 2, 5.0)], progress(4))
    rows = list(file.due(1000))
    assert [math.isnan(value) for value in rows[0].parts] == [True, False, True]  # type: ignore[arg-type]
    rows.append(row(2000, '["A"]', None, 2, None))
    bodies = [orjson.loads(event.data or b"") for event in results.of(rows)]
    assert [(body["mean"], body["total"]) for body in bodies] == [(None, None), (None, None)]


def test_a_file_of_another_declaration_or_a_damaged_one_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    file = WindowFile(path, PARTS, has_sessions=False)
    file.apply([row(10, '["A"]', 1, 1, 0.5, 1, "b", 1)], progress(1))
    file.close()
    WindowFile(path, PARTS[:2], has_sessions=True).close()
    other = WindowFile(path, PARTS[:1], has_sessions=False)
    assert (other.progress, other.windows()) == (None, 0)
    other.apply([row(10, '["A"]', 1)], progress(1))
    other.close()
    path.write_bytes(b"no database" * 1000)
    assert WindowFile(path, PARTS, has_sessions=False).progress is None


def test_an_event_that_bridges_two_sessions_makes_one_of_them_with_the_parts_of_all(tmp_path: Path) -> None:
    file = WindowFile(tmp_path / "a.db", PARTS[:2], has_sessions=True)

    def apply(number: int, *rows: tuple[int, int, str, int]) -> list[WindowRow]:
        file.apply([WindowRow(start, end, key, 1, [1, n]) for start, end, key, n in rows], progress(number))
        return list(file.due(1_000))

    assert apply(1, (0, 10, "A", 1), (20, 30, "A", 2), (30, 40, "A", 4), (5, 25, "B", 8)) == [
        WindowRow(0, 10, "A", 1, [1, 1]),
        WindowRow(5, 25, "B", 1, [1, 8]),
        WindowRow(20, 30, "A", 1, [1, 2]),
        WindowRow(30, 40, "A", 1, [1, 4]),
    ]
    assert file.earliest_open_ms(None) == 0
    assert file.earliest_open_ms(25) == 20
    assert file.earliest_open_ms(40) is None
    assert apply(2, (9, 21, "A", 16)) == [
        WindowRow(5, 25, "B", 1, [1, 8]),
        WindowRow(0, 30, "A", 3, [3, 19]),
        WindowRow(30, 40, "A", 1, [1, 4]),
    ]
    file.close()
    windows = WindowFile(tmp_path / "a.db", PARTS[:2], has_sessions=False)
    assert (windows.progress, windows.windows()) == (None, 0)


def test_a_file_says_whether_results_are_due(tmp_path: Path) -> None:
    file = WindowFile(tmp_path / "a.db", PARTS[:1], has_sessions=False)
    file.apply([row(10, '["A"]', 1)], progress(1))
    assert [file.has_due(horizon_ms) for horizon_ms in (9, 10, 11)] == [False, True, True]
    file.apply([], progress(2, emitted_ms=10))
    assert not file.has_due(11)
