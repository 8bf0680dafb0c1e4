"""`hifi demo --state`: its events, oracle and report; results and late events are right, whatever is killed."""

import io
import itertools
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

from hifi.pipe.limits import PipeLimits
from hifi.pipe.loader import load_views
from hifi.pipe.view_check import view_refusals
from hifi.record.partitioner import partition_of
from hifi_cli.demo.state import day_events
from hifi_cli.demo.state.day_events import FLIGHTS, WEATHER, DayEvent, FlightEvent, WeatherEvent
from hifi_cli.demo.state.live_reads import QUERY, VIEW, differing_ids, write_view
from hifi_cli.demo.state.oracle import (
    ExpectedStep,
    JoinStep,
    LoggedEvent,
    LoggedHeartbeat,
    PipeLog,
    Place,
    WindowStep,
    closed_until_ms,
    watermarks,
)
from hifi_cli.demo.state.step_arrivals import StepArrivals
from hifi_cli.demo.state.step_demo import KILLS, READ_AFTER, with_steps
from hifi_cli.demo.state.step_log import StepLetter
from hifi_cli.demo.state.step_pipes import AIRPORTS, CARRIERS, DEPARTURES, STEPS, step_pipes
from hifi_cli.demo.state.step_report import (
    expected_outcomes,
    step_report,
    step_results_are_good,
    step_table,
)
from hifi_cli.demo.tour_parts import TourPart
from hifi_cli.demo.verify import Arrival, RequestLogReader
from hifi_cli.display.tables import print_table
from hifi_cli.query.read_only_sql import tables_read
from hifi_cli.query.record_tables import TABLES
from hifi_infra.mesh.plan import FLOW, Plan

PARTITIONS = 4
MINUTE_MS = 60_000
STEP = WindowStep("by-carrier", 5 * MINUTE_MS, "carrier", 10 * MINUTE_MS)
JOIN = JoinStep("joined", 5 * MINUTE_MS, "origin", 60 * MINUTE_MS)
SECOND_NS = 1_000_000_000


def flight(name: str, minute: int, delay: int | None = 0, carrier: str = "UA") -> FlightEvent:
    """A flight that left a number of minutes after a day's begin."""
    return FlightEvent(name, minute * MINUTE_MS, minute * MINUTE_MS, carrier, "JFK", "N1", delay)


def weather(name: str, minute: int) -> WeatherEvent:
    return WeatherEvent(name, minute * MINUTE_MS, minute * MINUTE_MS, "JFK", 75.5, None)


def by_id(events: Iterable[DayEvent]) -> dict[str, DayEvent]:
    return {event.id: event for event in events}


def logged(events: Iterable[DayEvent], partition: int = 0) -> list[LoggedEvent]:
    return [LoggedEvent(partition, offset, event.id) for offset, event in enumerate(events)]


_TOTALS = (
    "count(*) flights, count_if({0}delay >= 15) late, sum({0}delay) total, max({0}delay) worst,"
    " avg({0}delay) mean"
)
_TIME = "strftime(make_timestamp(({}) * 1000), '%Y-%m-%dT%H:%M:%S.%gZ')"
QUERIES: dict[ExpectedStep, str] = {
    CARRIERS: f"""
        select {_TIME.format("time_ms - time_ms % length_ms")} window_start,
          {_TIME.format("time_ms - time_ms % length_ms + length_ms")} window_end, carrier, {_TOTALS.format("")}
        from flights group by all
    """,
    AIRPORTS: f"""
        select {_TIME.format("flight.time_ms - flight.length_ms")} window_start,
          {_TIME.format("flight.time_ms")} window_end, flight.id as event, flight.origin, {_TOTALS.format("other.")}
        from flights flight join flights other
          on other.origin = flight.origin and other.time_ms between flight.time_ms - flight.length_ms and flight.time_ms
        group by flight.id, flight.origin, flight.time_ms, flight.length_ms
    """,
    DEPARTURES: """
        select flight.id as event, weather.id as with, flight.origin, flight.carrier, delay, weather.temp, weather.wind
        from flights flight left join weather
          on weather.origin = flight.origin and abs(weather.time_ms - flight.time_ms) <= flight.length_ms
    """,
}


def duckdb_results(file: Path, step: ExpectedStep, late_ids: Iterable[str]) -> dict[Place, dict[str, Any]]:
    """The results of a step by DuckDB over a file of events."""
    with duckdb.connect() as database:
        result_rows = database.execute(
            f"""
            with events as (
              select *, epoch_ms("at"::timestamp) as time_ms, $length::bigint as length_ms
              from read_json($file, union_by_name = true)
              where not list_contains($late, id)
            ),
            flights as (select * exclude (temp, wind) from events where delay is not null),
            weather as (select id, time_ms, origin, temp, wind from events where carrier is null)
            {QUERIES[step]}
            """,
            {"file": str(file), "late": list(late_ids), "length": step.length_ms},
        )
        column_names = [column[0] for column in result_rows.description or ()]
        bodies = [dict(zip(column_names, values, strict=True)) for values in result_rows.fetchall()]
    return {step.place(body): body for body in bodies}


@pytest.fixture(scope="module")
def day() -> list[DayEvent]:
    return day_events.events()


def logs_of(day: Iterable[DayEvent]) -> dict[str, PipeLog]:
    """The events as `raw` has them if they are sent in their order."""
    logs: dict[str, list[LoggedEvent]] = {FLIGHTS: [], WEATHER: []}
    for offset, event in enumerate(day):
        key = event.plane if isinstance(event, FlightEvent) else event.origin
        logs[event.pipe].append(LoggedEvent(partition_of(key.encode(), PARTITIONS), offset, event.id))
    return {pipe: PipeLog(events) for pipe, events in logs.items()}


@pytest.mark.slow
def test_the_disorder_of_the_day_is_the_same_in_each_run_and_makes_one_percent_late(
    day: list[DayEvent],
) -> None:
    assert day == day_events.events()
    events, logs = by_id(day), logs_of(day)
    assert len(events) == len(day) > 1000
    late_ids = {
        step: {pipe: step.late(events, watermarks(logs[pipe], events)) for pipe in step.reads}
        for step in STEPS
    }
    for pipes in late_ids.values():
        assert len(pipes[FLIGHTS]) >= len(day) / 100
    assert late_ids[DEPARTURES][WEATHER]
    assert any(isinstance(event, FlightEvent) and event.delay is None for event in day), (
        "no flight is left out by `where`"
    )


@pytest.mark.slow
def test_what_has_no_stamp_is_not_late_and_the_next_morning_closes_all_results_of_the_day(
    day: list[DayEvent],
) -> None:
    logs, events = logs_of(day), by_id(day)
    for log in logs.values():
        for partition in {event.partition for event in log.events}:
            first_event = next(event for event in log.events if event.partition == partition)
            assert events[first_event.id].time_ms >= max(
                event.time_ms for event in day[: first_event.offset + 1]
            )
    assert {event.partition for event in logs[FLIGHTS].events} == set(range(PARTITIONS))
    evening_ms = max(
        event.time_ms for event in day if isinstance(event, FlightEvent) and event.due_ms > event.time_ms
    )
    for outcome in expected_outcomes(STEPS, events, logs):
        assert outcome.closed_ms > evening_ms + outcome.step.length_ms
        assert len(outcome.due) > 800 or outcome.step == CARRIERS


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_the_results_of_the_oracle_are_those_of_duckdb(
    step: ExpectedStep, day: list[DayEvent], tmp_path: Path
) -> None:
    file = tmp_path / "events.ndjson"
    file.write_bytes(b"".join(orjson.dumps(event.body()) + b"\n" for event in day))
    late_ids = {event.id for event in day[::20]}
    late_ids |= {event.id for event in day if isinstance(event, WeatherEvent) and event.origin == "LGA"}
    results = step.results(event for event in day if event.id not in late_ids and event.pipe in step.reads)
    assert len(results) > 200
    assert {place: result.body for place, result in results.items()} == duckdb_results(file, step, late_ids)
    if step == DEPARTURES:
        assert any(not weather_id for _, weather_id in results)


def test_the_declared_steps_are_those_of_the_oracle() -> None:
    *_, first, second, third = step_pipes(1)
    for pipe, step in zip((first, second, third), STEPS, strict=True):
        source: Any = pipe.source
        assert (pipe.pipe, list(source.key), source.lateness_ms) == (step.name, [step.key], step.lateness_ms)
        assert (source.length_ms, source.read_pipes) == (step.length_ms, step.reads)


def test_an_event_is_late_by_the_latest_time_before_it_in_its_partition() -> None:
    flights = by_id(flight(name, minute) for name, minute in (("a", 0), ("b", 20), ("c", 15), ("d", 14)))
    watermarks_ms = watermarks(PipeLog(logged(flights.values())), flights)
    assert watermarks_ms == {"a": None, "b": 0, "c": 20 * MINUTE_MS, "d": 20 * MINUTE_MS}
    assert STEP.late(flights, watermarks_ms) == {"d"}
    apart = [*logged([flights["a"], flights["b"]]), *logged([flights["c"], flights["d"]], partition=1)]
    assert STEP.late(flights, watermarks(PipeLog(apart), flights)) == set()


def test_an_event_of_a_join_is_late_by_the_watermark_of_its_own_pipe() -> None:
    events = by_id([flight("a", 90), weather("w", 60), flight("b", 91), weather("v", 0), weather("u", 61)])
    log = logged(events.values())
    logs = {
        FLIGHTS: PipeLog([log[0], log[2]]),
        WEATHER: PipeLog([log[1], log[3], log[4]]),
    }
    (outcome,) = expected_outcomes([JOIN], events, logs)
    assert outcome.late == {"v"}
    assert outcome.results.keys() == {("a", "w"), ("a", "u"), ("b", "w"), ("b", "u")}
    assert outcome.closed_ms == 56 * MINUTE_MS, "the weather holds it"


def test_a_flight_without_weather_has_a_result_when_none_can_come_any_more() -> None:
    results = JOIN.results([flight("a", 0, 5), weather("w", 61), weather("v", -61)])
    assert {place: result.closed_ms for place, result in results.items()} == {("a", ""): 60 * MINUTE_MS + 1}
    assert results["a", ""].body == {
        "event": "a", "with": None, "origin": "JFK", "carrier": "UA", "delay": 5, "temp": None, "wind": None,
    }  # fmt: skip


def test_a_cancelled_flight_is_never_late() -> None:
    flights = by_id([flight("a", 60), flight("b", 0, delay=None), flight("c", 0)])
    assert STEP.late(flights, watermarks(PipeLog(logged(flights.values())), flights)) == {"c"}


def test_a_heartbeat_raises_the_watermark_of_what_comes_after_it() -> None:
    flights = by_id([flight("a", 0), flight("b", 1), flight("c", 2)])
    beats = [LoggedHeartbeat(0, 1, 3 * MINUTE_MS), LoggedHeartbeat(1, 0, 90 * MINUTE_MS)]
    watermarks_ms = watermarks(PipeLog(logged(flights.values()), beats), flights)
    assert watermarks_ms == {"a": None, "b": 0, "c": 3 * MINUTE_MS}


def test_an_event_that_was_sent_twice_is_judged_once_by_its_first_record() -> None:
    flights = by_id([flight("a", 60), flight("b", 58)])
    log = [LoggedEvent(0, 0, "b"), LoggedEvent(0, 1, "a"), LoggedEvent(0, 2, "b")]
    assert watermarks(PipeLog(log), flights) == {"b": None, "a": 58 * MINUTE_MS}


def test_windows_close_when_every_partition_has_passed_them() -> None:
    flights = by_id([flight("a", 60), flight("b", 20), flight("c", 40)])
    log = [LoggedEvent(0, 0, "a"), LoggedEvent(1, 0, "b"), LoggedEvent(1, 1, "c")]
    assert closed_until_ms([PipeLog(log)], flights, STEP.lateness_ms) == 35 * MINUTE_MS


FLOWN = by_id([flight("a", 1, 20), flight("b", 2, -3), flight("c", 30), flight("x", 12), flight("d", 90, 5)])
"""`x` is late; the window of `d` stays open."""
LETTER = StepLetter("x", "state", "late", STEP.name)
DONE = TourPart("arrive", True, 1.0, "all")
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
    parts: Iterable[TourPart] = (DONE,),
    kills_ns: Iterable[int] = (),
) -> dict[str, Any]:
    arrivals = StepArrivals(RequestLogReader(Path("unused")), [STEP])
    for request in received:
        arrivals.add(request)
    return step_report(
        list(parts),
        FLOWN,
        expected_outcomes([STEP], FLOWN, {FLIGHTS: PipeLog(logged(FLOWN.values()))}),
        arrivals,
        letters,
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
    figure_names = ("lost", "duplicates", "different")
    assert {name: numbers[name] for name in figure_names if numbers[name]} == wrong_counts
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
        [LETTER._replace(step="by-airport")],
    ],
    ids=["missing", "not late", "another reason", "another service", "another step"],
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
    assert not step_results_are_good(reported(all_arrivals(), parts=[replace(DONE, ok=False)]))


def test_the_table_fits_80_columns_and_names_units() -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    print_table(step_table(reported(all_arrivals())), console)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "experimental" in text
    assert "600 times as fast" in " ".join(text.split())


def test_each_service_of_the_mesh_is_killed_once_apart_and_events_are_read_between_kills(
    tmp_path: Path,
) -> None:
    plan = with_steps(Plan(tmp_path))
    services = {service for service in FLOW if plan.instances(service)}
    assert set(KILLS) == services
    assert {plan.instances(service) for service in services} == {1}
    shares = sorted(KILLS.values())
    assert min(later - earlier for earlier, later in itertools.pairwise(shares)) > 0.05
    assert shares[0] < READ_AFTER < shares[-1] < 1


def test_the_view_of_the_demo_is_one_that_its_pipe_allows(tmp_path: Path) -> None:
    write_view(tmp_path / "views")
    (loaded_view,), problems = load_views(tmp_path / "views")
    assert problems == []
    assert loaded_view.view.view == VIEW
    (flights,) = (pipe for pipe in step_pipes(1) if pipe.pipe == FLIGHTS)
    assert list(view_refusals(loaded_view.view, flights, PipeLimits())) == []
    assert tables_read(QUERY, TABLES) == ["enriched"]


@pytest.mark.parametrize(
    ("rows", "expected_ids"),
    [
        ([("a", 5), ("b", None)], []),
        ([("a", 5), ("b", None), ("c", 0)], []),
        ([("a", 5)], ["b"]),
        ([("a", 6), ("b", None)], ["a"]),
        ([("a", 5), ("b", 0)], ["b"]),
        ([("a", 5), ("b", None), ("c", 1)], ["c"]),
        ([("a", 5), ("b", None), ("a", 5)], ["a"]),
        ([("a", 5), ("b", None), ("x", 1)], ["x"]),
    ],
    ids=["all", "a later one", "missing", "another delay", "not null", "wrong", "twice", "never sent"],
)
def test_a_read_differs_if_it_lacks_an_accepted_flight_or_has_values_that_were_not_sent(
    rows: list[tuple[str, int | None]], expected_ids: list[str]
) -> None:
    accepted = [flight("a", 1, 5), flight("b", 2, None)]
    sent = {event.id: event for event in (*accepted, flight("c", 3, 0))}
    read_rows = [{"id": name, "carrier": "UA", "origin": "JFK", "delay": delay} for name, delay in rows]
    assert differing_ids(read_rows, accepted, sent) == expected_ids


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
    assert numbers["killed"] == list(KILLS)
    assert not any(numbers[name] for name in ("different", "lost", "duplicates", "late_different"))
    arrivals = StepArrivals(RequestLogReader(data / "requests.log"), STEPS)
    arrivals.read()
    sent_counts = Counter(pipe for pipe, _ in arrivals.first_ns)
    assert sent_counts[FLIGHTS] + sent_counts[WEATHER] == numbers["events"]
    for step in STEPS:
        results = duckdb_results(data / "events.ndjson", step, numbers["late_ids"][step.name])
        arrived = arrivals.results[step.name]
        assert len(arrived) > 200
        for place, [body] in arrived.items():
            assert body == results[place]
