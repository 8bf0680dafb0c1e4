"""`hifi demo --state`: its flights, oracle and report; results and late events are right, whatever is killed."""

import io
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest
from rich.console import Console

from hifi.record.partitioner import partition_of
from hifi_cli.demo.state import flight_day
from hifi_cli.demo.state.flight_day import CLOSING, FlightEvent
from hifi_cli.demo.state.oracle import (
    ExpectedStep,
    LoggedEvent,
    LoggedHeartbeat,
    closed_until_ms,
    watermarks,
)
from hifi_cli.demo.state.step_arrivals import Place, StepArrivals
from hifi_cli.demo.state.step_log import StepLetter
from hifi_cli.demo.state.step_pipes import FLIGHTS, STEPS, step_pipes
from hifi_cli.demo.state.step_report import (
    expected_outcomes,
    step_report,
    step_results_are_good,
    step_table,
)
from hifi_cli.demo.tour_steps import TourStep
from hifi_cli.demo.verify import Arrival, RequestLogReader
from hifi_cli.display.tables import print_table

PARTITIONS = 4
MINUTE_MS = 60_000
STEP = ExpectedStep("by-carrier", "carrier", 10 * MINUTE_MS, 10 * MINUTE_MS, 5 * MINUTE_MS)
SECOND_NS = 1_000_000_000


def flight(name: str, minute: int, delay: int | None = 0, carrier: str = "UA") -> FlightEvent:
    """A flight that left a number of minutes after a day's begin."""
    return FlightEvent(name, minute * MINUTE_MS, minute * MINUTE_MS, carrier, "JFK", "N1", delay)


def by_id(flights: Iterable[FlightEvent]) -> dict[str, FlightEvent]:
    return {event.id: event for event in flights}


def logged(flights: Iterable[FlightEvent], partition: int = 0) -> list[LoggedEvent]:
    return [LoggedEvent(partition, offset, event.id) for offset, event in enumerate(flights)]


def duckdb_results(events: Path, step: ExpectedStep, late_ids: Iterable[str]) -> dict[Place, dict[str, Any]]:
    """The results of a step by DuckDB over a file of events."""
    with duckdb.connect() as database:
        rows = database.execute(
            f"""
            with counted as (
              select *, epoch_ms("at"::timestamp) as time_ms from read_json($file) where delay is not null
              and not list_contains($late, id)
            ), placed as (
              select *, time_ms - time_ms % $every - unnest(range($size // $every)) * $every + $size as end_ms
              from counted
            )
            select end_ms, {step.key}, count(*), count_if(delay >= 15), sum(delay), max(delay), avg(delay) from placed
            group by all
            """,
            {"file": str(events), "late": list(late_ids), "every": step.every_ms, "size": step.size_ms},
        ).fetchall()
    names = ("flights", "late", "total", "worst", "mean")
    return {(end_ms, key): dict(zip(names, values, strict=True)) for end_ms, key, *values in rows}


@pytest.fixture(scope="module")
def day() -> list[FlightEvent]:
    return flight_day.events()


@pytest.mark.slow
def test_the_disorder_of_the_day_is_the_same_in_each_run_and_makes_one_percent_late(
    day: list[FlightEvent],
) -> None:
    assert day == flight_day.events()
    flights = by_id(day)
    assert len(flights) == len(day) > 900
    log = [
        LoggedEvent(partition_of(event.plane.encode(), PARTITIONS), offset, event.id)
        for offset, event in enumerate(day)
    ]
    watermarks_ms = watermarks(log, (), flights)
    for step in STEPS:
        assert len(step.late(flights, watermarks_ms)) >= len(day) / 100
    assert any(event.delay is None for event in day), "no flight is left out by `where`"


@pytest.mark.slow
def test_what_has_no_stamp_is_not_late_and_the_next_morning_closes_the_windows_of_the_day(
    day: list[FlightEvent],
) -> None:
    partitions = [partition_of(event.plane.encode(), PARTITIONS) for event in day]
    for partition in range(PARTITIONS):
        first = partitions.index(partition)
        assert first < flight_day.IN_ORDER
        assert day[first].time_ms >= max(event.time_ms for event in day[: first + 1])
    assert set(partitions[-CLOSING:]) == set(range(PARTITIONS))
    latest_ms = max(event.time_ms for event in day[:-CLOSING])
    log = [LoggedEvent(partitions[offset], offset, event.id) for offset, event in enumerate(day)]
    for step in STEPS:
        assert closed_until_ms(log, by_id(day), step.lateness_ms) >= latest_ms + step.size_ms


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_the_results_of_the_oracle_are_those_of_duckdb(
    step: ExpectedStep, day: list[FlightEvent], tmp_path: Path
) -> None:
    file = tmp_path / "events.ndjson"
    file.write_bytes(b"".join(orjson.dumps(event.body()) + b"\n" for event in day))
    late_ids = {event.id for event in day[::50]}
    results = step.results(event for event in day if event.id not in late_ids)
    assert len(results) > 200
    assert results == duckdb_results(file, step, late_ids)


def test_the_declared_steps_are_those_of_the_oracle() -> None:
    _, *pipes = step_pipes(1)
    for pipe, step in zip(pipes, STEPS, strict=True):
        source: Any = pipe.source
        assert (pipe.pipe, list(source.key), source.lateness_ms) == (step.name, [step.key], step.lateness_ms)
        assert (source.window.size_ms, source.window.every_ms) == (step.size_ms, step.every_ms)


def test_an_event_is_late_by_the_latest_time_before_it_in_its_partition() -> None:
    flights = by_id(flight(name, minute) for name, minute in (("a", 0), ("b", 20), ("c", 15), ("d", 14)))
    watermarks_ms = watermarks(logged(flights.values()), (), flights)
    assert watermarks_ms == {"a": None, "b": 0, "c": 20 * MINUTE_MS, "d": 20 * MINUTE_MS}
    assert STEP.late(flights, watermarks_ms) == {"d"}
    apart = [*logged([flights["a"], flights["b"]]), *logged([flights["c"], flights["d"]], partition=1)]
    assert STEP.late(flights, watermarks(apart, (), flights)) == set()


def test_a_cancelled_flight_is_never_late() -> None:
    flights = by_id([flight("a", 60), flight("b", 0, delay=None), flight("c", 0)])
    assert STEP.late(flights, watermarks(logged(flights.values()), (), flights)) == {"c"}


def test_a_heartbeat_raises_the_watermark_of_what_comes_after_it() -> None:
    flights = by_id([flight("a", 0), flight("b", 1), flight("c", 2)])
    beats = [LoggedHeartbeat(0, 1, 3 * MINUTE_MS), LoggedHeartbeat(1, 0, 90 * MINUTE_MS)]
    watermarks_ms = watermarks(logged(flights.values()), beats, flights)
    assert watermarks_ms == {"a": None, "b": 0, "c": 3 * MINUTE_MS}


def test_an_event_that_was_sent_twice_is_judged_once_by_its_first_record() -> None:
    flights = by_id([flight("a", 60), flight("b", 58)])
    log = [LoggedEvent(0, 0, "b"), LoggedEvent(0, 1, "a"), LoggedEvent(0, 2, "b")]
    assert watermarks(log, (), flights) == {"b": None, "a": 58 * MINUTE_MS}


def test_windows_close_when_every_partition_has_passed_them() -> None:
    flights = by_id([flight("a", 60), flight("b", 20), flight("c", 40)])
    log = [LoggedEvent(0, 0, "a"), LoggedEvent(1, 0, "b"), LoggedEvent(1, 1, "c")]
    assert closed_until_ms(log, flights, STEP.lateness_ms) == 35 * MINUTE_MS


FLOWN = by_id([flight("a", 1, 20), flight("b", 2, -3), flight("c", 30), flight("x", 12), flight("d", 90, 5)])
"""`x` is late; the window of `d` stays open."""
LETTER = StepLetter("x", "state", "late", "… of the step by-carrier, whose windows are closed there")
DONE = TourStep("arrive", True, 1.0, "all")
RESULTS = {
    10: {"flights": 2, "late": 1, "total": 17, "worst": 20, "mean": 8.5},
    40: {"flights": 1, "late": 0, "total": 0, "worst": 0, "mean": 0.0},
}
"""Minute at which the window ends to its result."""


def arrival(pipe: str, name: str, data: Any = None, second: int = 1) -> Arrival:
    return Arrival(f"/{pipe}", name, second * SECOND_NS, data, well_formed=True)


def result(minute: int, fields: Mapping[str, Any], name: str = "") -> Arrival:
    window = {
        "window_start": f"1970-01-01T00:{minute - 10:02}:00.000Z",
        "window_end": f"1970-01-01T00:{minute:02}:00.000Z",
    }
    return arrival(STEP.name, name or f"r{minute}", {**window, "carrier": "UA", **fields})


def all_arrivals() -> list[Arrival]:
    results = [result(minute, fields) for minute, fields in RESULTS.items()]
    return [*(arrival(FLIGHTS, name) for name in FLOWN), *results]


def reported(
    received: Iterable[Arrival],
    letters: Iterable[StepLetter] = (LETTER,),
    steps: Iterable[TourStep] = (DONE,),
    kills_ns: Iterable[int] = (),
) -> dict[str, Any]:
    arrivals = StepArrivals(RequestLogReader(Path("unused")), [STEP])
    for request in received:
        arrivals.add(request)
    return step_report(
        list(steps),
        FLOWN,
        expected_outcomes([STEP], FLOWN, logged(FLOWN.values()), ()),
        arrivals,
        letters,
        flights_pipe=FLIGHTS,
        ambiguous=arrivals.ambiguous(kills_ns, ()),
        acceleration=600,
    )


def test_a_run_in_which_all_is_right_is_good() -> None:
    numbers = reported(all_arrivals())
    counts = {name: value for name, value in numbers.items() if isinstance(value, int)}
    assert counts == {
        "acceleration": 600, "events": 5, "results": 2, "different": 0, "lost": 0, "duplicates": 0, "ambiguous": 0,
        "late": 1, "late_different": 0,
    }  # fmt: skip
    assert numbers["late_ids"] == {STEP.name: ["x"]}
    assert step_results_are_good(numbers)


def test_the_result_of_an_open_window_may_arrive_but_must_be_right() -> None:
    late_fields = {"flights": 1, "late": 0, "total": 5, "worst": 5, "mean": 5.0}
    open_window = {
        "window_start": "1970-01-01T01:30:00.000Z",
        "window_end": "1970-01-01T01:40:00.000Z",
        "carrier": "UA",
    }
    good = reported([*all_arrivals(), arrival(STEP.name, "open", {**open_window, **late_fields})])
    assert step_results_are_good(good)
    wrong = reported([*all_arrivals(), arrival(STEP.name, "open", {**open_window, **late_fields, "late": 1})])
    assert wrong["different"] == 1


@pytest.mark.parametrize(
    ("change", "wrong_counts"),
    [
        (lambda requests: requests[1:], {"lost": 1}),
        (lambda requests: requests[:-1], {"lost": 1}),
        (lambda requests: [*requests, requests[0]], {"duplicates": 1}),
        (lambda requests: [*requests, requests[-1]], {"duplicates": 1}),
        (lambda requests: [*requests[:-1], result(40, {**RESULTS[40], "total": 1})], {"different": 1}),
        (lambda requests: [*requests, result(20, RESULTS[40])], {"different": 1}),
        (lambda requests: [*requests, result(40, RESULTS[40], "another id")], {"different": 1}),
    ],
)
def test_every_wrong_request_is_counted(change: Any, wrong_counts: dict[str, int]) -> None:
    numbers = reported(change(all_arrivals()))
    names = ("lost", "duplicates", "different")
    assert {name: numbers[name] for name in names if numbers[name]} == wrong_counts
    assert not step_results_are_good(numbers)


def test_a_request_that_the_kill_of_egest_explains_is_ambiguous() -> None:
    repeated = [*all_arrivals(), arrival(FLIGHTS, "a", second=9)]
    assert reported(repeated, kills_ns=[5 * SECOND_NS])["duplicates"] == 0
    assert reported(repeated, kills_ns=[90 * SECOND_NS])["duplicates"] == 1


@pytest.mark.parametrize(
    "letters",
    [
        [],
        [LETTER, LETTER._replace(id="a")],
        [LETTER._replace(reason="no-key")],
        [LETTER, StepLetter("b", "normalize", "schema", "")],
    ],
    ids=["missing", "not late", "another reason", "another service"],
)
def test_dead_letters_must_be_those_of_the_late_events(letters: list[StepLetter]) -> None:
    numbers = reported(all_arrivals(), letters)
    assert numbers["late_different"] > 0
    assert numbers["differences"]
    assert not step_results_are_good(numbers)


def test_a_dead_letter_may_be_written_twice() -> None:
    assert step_results_are_good(reported(all_arrivals(), [LETTER, LETTER]))


def test_a_run_is_not_good_without_late_events_or_with_a_step_that_failed() -> None:
    good = reported(all_arrivals())
    assert not step_results_are_good(good | {"events": 101})
    assert not step_results_are_good(reported(all_arrivals(), steps=[replace(DONE, ok=False)]))


def test_the_table_fits_80_columns_and_names_units() -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    print_table(step_table(reported(all_arrivals())), console)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "experimental" in text
    assert "600 times as fast" in " ".join(text.split())


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--rate=5", "--for=5", "--secure"])
def test_options_that_do_not_go_with_the_demo_are_refused(option: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hifi_cli", "demo", "--state", option]
    completed = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120
    )
    assert completed.returncode == 1
    assert "does not go with --state" in completed.stderr


@pytest.mark.more
@pytest.mark.timeout(1500)
def test_the_demo_of_steps(tmp_path: Path) -> None:
    report, data = tmp_path / "report.json", tmp_path / "data"
    command = [sys.executable, "-m", "hifi_cli", "demo", "--state", "--kill", "--report", str(report)]
    completed = subprocess.run(
        [*command, "--data", str(data)], capture_output=True, text=True, check=False, timeout=1400
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    numbers = orjson.loads(report.read_bytes())
    assert numbers["killed"] == ["egest", "normalize", "state", "enrich"]
    assert not any(numbers[name] for name in ("different", "lost", "duplicates", "late_different"))
    arrivals = StepArrivals(RequestLogReader(data / "requests.log"), STEPS)
    arrivals.read()
    assert Counter(pipe for pipe, _ in arrivals.first_ns)[FLIGHTS] == numbers["events"]
    for step in STEPS:
        results = duckdb_results(data / "events.ndjson", step, numbers["late_ids"][step.name])
        arrived = arrivals.results[step.name]
        assert len(arrived) > 200
        for place, [body] in arrived.items():
            assert {name: value for name, value in body.items() if name != "window_start"} == results[place]
