"""The figures of a report agree with the minutes that it is made of, counted one by one."""

import math
import random
from collections import Counter
from datetime import datetime
from fractions import Fraction
from typing import Any

import orjson
import pytest
from pydantic import TypeAdapter
from tests.support.seeds import seeds

from hifi_observe.minutes.availability import DAY_MINUTES
from hifi_observe.minutes.day_record import COUNTS, KEPT_DAYS, DayRecord, MinuteState
from hifi_observe.minutes.named_ids import EventId, NamedIds
from hifi_observe.reports.month import Month, minute_text, month_before, month_of
from hifi_observe.reports.pipe_month import PipeMonth, pipe_month
from hifi_observe.reports.report import (
    DEFINITIONS,
    MOST_IDS,
    ReportedPipe,
    ReportHead,
    ReportJson,
    reasons_text,
    report,
)

HEAD = ReportHead("s", (), "2026-11-01T00:00:00Z", "hifi-observe 0", None, None, 0.999)
STATES = [
    MinuteState("up"),
    MinuteState("down", ("lag",)),
    MinuteState("down", ("loss", "ingest")),
    MinuteState("unknown"),
]


def minute_of(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) // 60


def drawn_states(draw: random.Random, first: int, end: int) -> dict[int, MinuteState]:
    """Minutes with a state: long runs, single minutes and gaps."""
    states: dict[int, MinuteState] = {}
    minute = first
    while minute < end:
        length = draw.choice([1, 1, 2, 30, 1440, 5000])
        state = draw.choice([None, STATES[0], STATES[0], *STATES])
        if state is not None:
            states.update(dict.fromkeys(range(minute, min(minute + length, end)), state))
        minute += length
    return states


def days_of(draw: random.Random, states: dict[int, MinuteState]) -> tuple[dict[int, DayRecord], Counter[str]]:
    """The days of these minutes, as several records of each wrote them; some minutes were amended."""
    days: dict[int, DayRecord] = {}
    total: Counter[str] = Counter()
    rows_by_day: dict[int, list[tuple[int, MinuteState]]] = {}
    for minute, state in states.items():
        rows_by_day.setdefault(minute // DAY_MINUTES, []).append((minute % DAY_MINUTES, state))
    for number, rows in rows_by_day.items():
        early_rows = draw.sample(rows, len(rows) // 3)
        counts = {name: draw.randrange(1000) for name in COUNTS}
        day = DayRecord().updated([(minute, draw.choice(STATES)) for minute, _ in early_rows], {})
        draw.shuffle(rows)
        day = day.updated(rows[: len(rows) // 2], {}).updated(rows, counts)
        days[number] = DayRecord.load(orjson.loads(orjson.dumps(day.dump())))
        assert dict(days[number].states()) == dict(rows)
        assert days[number].by_state() == {
            name: sum(state.state == name for _, state in rows) for name in ("up", "down", "unknown")
        }
        total.update(counts)
    return days, total


def report_of(month: Month, figures: PipeMonth, **options: Any) -> ReportJson:
    pipe = ReportedPipe("p", None, None, figures, options.get("ids", []), options.get("hides_ids", False))
    return report(HEAD, month, [pipe])


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(15, 40))
def test_each_minute_that_has_passed_is_counted_once_with_its_reason(seed: int) -> None:
    draw = random.Random(seed)
    whole_month = month_of("2026-10", 10**9)
    now_minute = draw.choice([10**9, draw.randrange(whole_month.first, whole_month.end)])
    month = month_of("2026-10", now_minute)
    since = draw.randrange(whole_month.first - 3 * DAY_MINUTES, whole_month.end)
    closed_minute = draw.choice(
        [-1, min(now_minute, whole_month.end) - draw.randrange(1, 600), whole_month.end + 10]
    )
    states = drawn_states(draw, since, min(whole_month.end, closed_minute + 1)) if draw.random() < 0.9 else {}
    days, _ = days_of(draw, states)
    figures = pipe_month(days, month, closed_minute)
    answer = report_of(month, figures)["pipes"][0]

    first_recorded = min(states, default=None)
    expected: Counter[tuple[str, tuple[str, ...]]] = Counter()
    states_by_minute: dict[int, tuple[str, tuple[str, ...]]] = {}
    for minute in range(month.first, month.passed_end):
        if minute in states:
            state = states[minute]
            row = (state.state, ("not-judged",) if state.state == "unknown" else state.causes)
        elif minute > closed_minute:
            row = ("unknown", ("not-closed",))
        elif first_recorded is None or minute < first_recorded:
            row = ("unknown", ("before-first-minute",))
        else:
            row = ("unknown", ("not-recorded",))
        states_by_minute[minute] = row
        expected[row] += 1
    reported_states = {
        minute: (state, tuple(span["reasons"]))
        for state in ("down", "unknown")
        for span in (answer["down"] if state == "down" else answer["unknown"])
        for minute in range(minute_of(span["since"]), minute_of(span["until"]))
    }
    assert reported_states == {minute: row for minute, row in states_by_minute.items() if row[0] != "up"}
    minutes = answer["minutes"]
    counts_by_state: Counter[str] = Counter(row[0] for row in states_by_minute.values())
    assert minutes == {
        "total": month.passed_end - month.first,
        **{name: counts_by_state[name] for name in ("up", "down", "unknown")},
    }
    assert sum(span["minutes"] for span in answer["down"]) == minutes["down"]
    assert sum(span["minutes"] for span in answer["unknown"]) == minutes["unknown"]
    for spans in (answer["down"], answer["unknown"]):
        assert all(span["minutes"] > 0 for span in spans)
        assert [span["since"] for span in spans] == sorted(span["since"] for span in spans)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(8, 20))
def test_shares_nines_budget_and_counts_follow_from_the_minutes(seed: int) -> None:
    draw = random.Random(seed)
    month = month_of("2026-02", 10**9)
    states = drawn_states(draw, month.first, month.end)
    days, total = days_of(draw, states)
    days[month.end // DAY_MINUTES] = DayRecord().updated([(0, STATES[1])], dict.fromkeys(COUNTS, 7))
    month_report = report_of(month, pipe_month(days, month, month.end))
    answer = month_report["pipes"][0]
    up_minutes, down_minutes = answer["minutes"]["up"], answer["minutes"]["down"]
    for text, share in (
        (
            answer["availability_percent"],
            Fraction(100 * up_minutes, up_minutes + down_minutes) if up_minutes + down_minutes else None,
        ),
        (answer["least_availability_percent"], Fraction(100 * up_minutes, 28 * DAY_MINUTES)),
    ):
        assert (text is None) is (share is None)
        if text is not None and share is not None:
            assert Fraction(0) <= share - Fraction(text) < Fraction(1, 10_000)
    if up_minutes:
        nines = -math.log10(max(down_minutes, 0.5) / (up_minutes + down_minutes))
        assert 0 <= nines - float(str(answer["nines"])) + 1e-8 < 0.01 + 2e-8
    assert answer["budget_minutes"] == "40.3"  # 28 days of which a thousandth may be down: 40.32 minutes
    assert Fraction(answer["budget_left_minutes"]) == math.floor(
        (Fraction("40.32") - down_minutes) * 10
    ) / Fraction(10)
    assert answer["events"] == {
        "accepted": total["in"],
        **{name: total[name] for name in ("delivered", "dead", "lost", "late")},
    }
    assert month_report["total"]["minutes"] == answer["minutes"]


def test_a_pipe_of_which_nothing_is_known_has_no_availability() -> None:
    month = month_of("2026-10", 10**9)
    answer = report_of(month, pipe_month({}, month, month.end))["pipes"][0]
    assert answer["minutes"] == {"total": 31 * DAY_MINUTES, "up": 0, "down": 0, "unknown": 31 * DAY_MINUTES}
    assert (answer["availability_percent"], answer["nines"]) == (None, None)
    assert answer["least_availability_percent"] == "0.0000"
    assert [(span["since"], span["until"], span["reasons"]) for span in answer["unknown"]] == [
        ("2026-10-01T00:00Z", "2026-11-01T00:00Z", ["before-first-minute"])
    ]


def test_lost_and_late_events_are_listed_by_id_and_those_left_out_are_counted() -> None:
    month = month_of("2026-10", 10**9)
    days = {
        month.first // DAY_MINUTES: DayRecord().updated([(0, STATES[2])], {"lost": MOST_IDS + 5, "late": 1})
    }
    lost_ids = tuple(EventId("egest", "crm", 1, "a" * 16, number) for number in range(MOST_IDS + 1))
    late_ids = (EventId("", "", 0, "b" * 16, 7),)
    ids = NamedIds(
        lost_ids, late_ids, len(lost_ids), 1, {f"{'a' * 16}:0": "order-1", f"{'b' * 16}:7": "order-2"}
    )
    figures = pipe_month(days, month, month.end)
    answer = report_of(month, figures, ids=[(month.first, ids)])["pipes"][0]
    assert answer["lost"][0] == {
        "minute": "2026-10-01T00:00Z",
        "id": "order-1",
        "identity": f"{'a' * 16}:0",
        "partition": 1,
        "lost_at": "egest",
        "destination": "crm",
    }
    assert answer["lost"][1]["id"] is None
    assert (len(answer["lost"]), answer["lost_not_listed"]) == (MOST_IDS, 5)
    assert [(event["id"], event["lost_at"]) for event in answer["late"]] == [("order-2", "")]
    hidden_row = report_of(month, figures, ids=[(month.first, ids)], hides_ids=True)["pipes"][0]
    assert {event["id"] for event in (*hidden_row["lost"], *hidden_row["late"])} == {None}
    assert "order-" not in str(hidden_row)


def test_a_month_that_has_not_ended_is_partial_and_others_are_refused() -> None:
    now_minute = minute_of("2026-11-27T00:10Z")
    month = month_of("2026-11", now_minute)
    assert (month.partial, minute_text(month.passed_end)) == (True, "2026-11-27T00:10Z")
    assert not month_of("2026-10", now_minute).partial
    assert month_before(now_minute) == "2026-10"
    assert month_before(minute_of("2026-01-31T23:59Z")) == "2025-12"
    month_names = ("2024-02", "2026-02", "2026-04", "2026-12")
    months = [month_of(name, now_minute + 10**6) for name in month_names]
    lengths = [(month.end - month.first) // DAY_MINUTES for month in months]
    assert lengths == [29, 28, 30, 31]
    for name in ("2026-12", "2026-13", "2026-1", "26-10", "", "2026-10-01", "٢٠٢٦-10", "1969-12", "0000-01"):
        with pytest.raises(ValueError, match=r"2026-10|has not begun"):
            month_of(name, now_minute)


def test_a_report_has_the_declared_form_and_each_figure_a_definition() -> None:
    month = month_of("2026-10", 10**9)
    figures = pipe_month({}, month, month.end)
    answer = report_of(month, figures)
    validated_answer = TypeAdapter(ReportJson).dump_python(TypeAdapter(ReportJson).validate_python(answer))
    assert validated_answer == answer, "the type has every member"
    pipe = answer["pipes"][0]
    figure_names = {*pipe["events"], *(pipe["minutes"].keys() - {"total"})} | {
        name for name in pipe if name.endswith(("_percent", "_minutes"))
    }
    assert figure_names | {"nines", "id", "identity", "minute", "colours", "owner"} == set(DEFINITIONS)


def test_minutes_older_than_what_is_kept_are_told_as_such() -> None:
    month = month_of("2026-10", 10**9)
    first_day = month.first // DAY_MINUTES
    days = {first_day + 20: DayRecord().updated([(0, STATES[0])], {})}
    closed_minute = (first_day + 10 + KEPT_DAYS) * DAY_MINUTES
    answer = report_of(month, pipe_month(days, month, closed_minute))["pipes"][0]
    assert [(span["since"], span["until"], span["reasons"]) for span in answer["unknown"]][:2] == [
        ("2026-10-01T00:00Z", "2026-10-11T00:00Z", ["no-longer-kept"]),
        ("2026-10-11T00:00Z", "2026-10-21T00:00Z", ["before-first-minute"]),
    ]
    [span] = report_of(month, pipe_month({}, month, 2 * closed_minute))["pipes"][0]["unknown"]
    assert (span["minutes"], reasons_text(span["reasons"])) == (31 * DAY_MINUTES, "no longer kept")
