"""The file of a step with `join`, and the results of its pairs."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from hifi.pipe.sources.step import StepSource
from hifi.record.step_account import NO_EVENTS, Tally, total
from hifi_state.fold.join_file import JoinFile
from hifi_state.fold.progress import Progress
from hifi_state.fold.results import ResultEvents
from hifi_state.fold.window_row import FoldedEvent, WindowRow

WITHIN_MS = 2_000
LATEST_MS = 12_000


def step_of(unmatched: str = "keep") -> StepSource:
    return StepSource.model_validate(
        {
            "kind": "step",
            "from": "departures",
            "key": {"origin": "string"},
            "fields": {"delay": "delay"},
            "join": {
                "with": "weather",
                "within": f"{WITHIN_MS}ms",
                "fields": {"temp": "temp"},
                "unmatched": unmatched,
            },
        }
    )


def progress(number: int, emitted_ms: int | None = None) -> Progress:
    return Progress("d", "departures", number, {0: number}, emitted_ms=emitted_ms, joined="weather")


def row(raw: int, time_ms: int, key: str = "A", *, of_with: bool = False) -> WindowRow:
    data = orjson.dumps({"temp" if of_with else "delay": raw})
    event = FoldedEvent(0, raw, f"e{raw}", None, data, of_with=of_with)
    key_text = orjson.dumps([key]).decode()
    return WindowRow(time_ms, time_ms + WITHIN_MS + 1, key_text, 1, [], Tally(1, 1 << raw % 60), event)


def results_of(rows: Sequence[WindowRow]) -> list[tuple[int, str, int, int | None]]:
    return [
        (row.end_ms, row.key, row.event.raw, row.partner.raw if row.partner else None)
        for row in rows
        if row.event is not None
    ]


def expected(rows: Sequence[WindowRow]) -> list[tuple[int, str, int, int | None]]:
    """All results, by comparing each event with each other one."""
    ordered: list[tuple[Any, ...]] = []
    for event_row in rows:
        event = event_row.event
        if event is None or event.of_with:
            continue
        partner_rows = [
            other
            for other in rows
            if other.event is not None
            and other.event.of_with
            and other.key == event_row.key
            and abs(other.start_ms - event_row.start_ms) <= WITHIN_MS
        ]
        for other in partner_rows:
            assert other.event is not None
            is_later = event_row.start_ms >= other.start_ms
            later, earlier = (event_row, other) if is_later else (other, event_row)
            assert later.event is not None
            assert earlier.event is not None
            order = (
                later.start_ms + 1,
                event_row.key,
                0,
                later.event.raw,
                earlier.start_ms,
                earlier.event.raw,
            )
            ordered.append((order, event.raw, other.event.raw))
        if not partner_rows:
            ordered.append(((event_row.end_ms, event_row.key, 1, event.raw, 0, 0), event.raw, None))
    return [(order[0], order[1], event, partner) for order, event, partner in sorted(ordered)]


_EVENTS = st.lists(
    st.tuples(st.sampled_from(range(0, LATEST_MS, 500)), st.sampled_from("AB"), st.booleans()), max_size=30
)


@given(
    events=_EVENTS,
    horizons_ms=st.lists(st.sampled_from(range(0, LATEST_MS, 1000)), max_size=4),
    lost_at=st.integers(0, 5),
    unmatched=st.sampled_from(["keep", "drop"]),
)
@example(events=[(0, "A", True), (2_000, "A", False)], horizons_ms=[3_000], lost_at=0, unmatched="keep")
@example(events=[(0, "A", True), (2_000, "A", False)], horizons_ms=[3_000], lost_at=2, unmatched="keep")
@example(events=[(1_000, "A", True), (1_000, "A", False)], horizons_ms=[2_000], lost_at=0, unmatched="drop")
def test_each_pair_and_each_event_without_a_partner_is_due_once_in_one_order(
    events: list[tuple[int, str, bool]], horizons_ms: list[int], lost_at: int, unmatched: str
) -> None:
    """Events come until the horizon passes their time, in any order; a lost file is filled again."""
    rows = [row(raw, time_ms, key, of_with=of_with) for raw, (time_ms, key, of_with) in enumerate(events)]
    due_rows: list[WindowRow] = []
    resulted, unmatched_count, emitted_ms = NO_EVENTS, 0, None
    with TemporaryDirectory() as folder:
        file = JoinFile(Path(folder) / "a.db", step_of(unmatched))
        file.apply([], progress(0))
        remaining = list(rows)
        for number, horizon_ms in enumerate([*sorted(horizons_ms), LATEST_MS + 2 * WITHIN_MS], start=1):
            # Those at or after the horizon may come later, and each second one does.
            entering = [
                new for new in remaining if new.start_ms < horizon_ms or (new.event and new.event.raw % 2)
            ]
            remaining = [new for new in remaining if new not in entering]
            file.apply(entering, progress(2 * number, emitted_ms))
            if number == lost_at:
                file.clear()
                needed_ms = (emitted_ms or 0) - WITHIN_MS
                present = [kept for kept in rows if kept not in remaining and kept.end_ms > needed_ms]
                file.apply(present, progress(2 * number, emitted_ms))
            newly_due_rows = list(file.due(horizon_ms))
            due_rows += newly_due_rows
            unmatched_count += file.outcomes["unmatched"]
            resulted = resulted.plus(total(due_row.ending for due_row in newly_due_rows)).plus(
                file.without_row
            )
            emitted_ms = horizon_ms
            file.apply([], progress(2 * number + 1, emitted_ms))
            assert resulted.plus(file.ending(emitted_ms)).plus(
                total(new.ending for new in remaining)
            ) == total(new.ending for new in rows)
        file.apply([], progress(99, LATEST_MS + 4 * WITHIN_MS))
        assert file.windows() == 0, "an event is dropped when no later result may need it"
        file.close()
    all_results = expected(rows)
    assert results_of(due_rows) == [
        result for result in all_results if unmatched == "keep" or result[-1] is not None
    ]
    assert unmatched_count == sum(result[-1] is None for result in all_results)


def test_an_event_leaves_with_its_data_but_stays_for_those_that_it_matches(tmp_path: Path) -> None:
    file = JoinFile(tmp_path / "a.db", step_of())
    file.apply([row(1, 0, of_with=True), row(2, 0), row(3, 1_000, of_with=True)], progress(1))
    file.apply([], progress(2, emitted_ms=3_000))
    kept = list(file._database.execute("select raw, data from windows order by raw"))
    assert kept == [(1, None), (3, b'{"temp":3}')]
    file.apply([], progress(3, emitted_ms=5_000))
    assert [raw for (raw,) in file._database.execute("select raw from windows")] == [3]


def test_a_result_has_the_values_of_both_events_as_they_were_written() -> None:
    event = FoldedEvent(0, 7, "d7", None, b'{"delay":123456789012345678901234567890.10}')
    partner = FoldedEvent(1, 9, "w9", None, b'{"temp":null}', of_with=True)
    pair = WindowRow(500, 1_501, '["JFK"]', 2, [], NO_EVENTS, event, partner)
    alone = WindowRow(500, 2_501, '["JFK"]', 1, [], Tally(1, 1), event)
    other = pair._replace(partner=partner._replace(raw=10))
    results = list(ResultEvents("joined", step_of(), []).of([pair, other, alone]))
    assert [result.data for result in results[::2]] == [
        b'{"event":"d7","with":"w9","origin":"JFK","delay":123456789012345678901234567890.10,"temp":null}',
        b'{"event":"d7","with":null,"origin":"JFK","delay":123456789012345678901234567890.10,"temp":null}',
    ]
    assert [(result.position, result.time_us, result.key) for result in results] == [
        (2 << 30, 1_500_000, b"JFK"),
        ((2 << 30) + 1, 1_500_000, b"JFK"),
        (3 << 30, 2_500_000, b"JFK"),
    ]
    assert len({dict(result.headers)["ce_id"] for result in results}) == 3
    assert {dict(result.headers)["ce_type"] for result in results} == {b"hifi.join"}
