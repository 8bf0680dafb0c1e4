import io
from typing import Any

import pytest
from rich.console import Console

from hifi_cli.demo.expected import ALERTS, DEPARTURES
from hifi_cli.demo.report import DemoRun, is_good, quantiles, report, tables
from hifi_cli.demo.topic_lags import TopicLags
from hifi_cli.demo.verify import Arrival, Comparison, SentEvent
from hifi_cli.display.tables import print_table

SECOND_NS = 1_000_000_000
MS_NS = 1_000_000


def make(count=4, **changes):
    """A run in which all went well: event n is due at n s, sent 1 ms, answered 3 ms and arrives 10 ms later."""
    sent = {
        f"e{n}": SentEvent(n * SECOND_NS, n * SECOND_NS + MS_NS, n * SECOND_NS + 4 * MS_NS, 202)
        for n in range(1, count + 1)
    }
    expected = {name: {DEPARTURES: {"id": name}} for name in sent}
    comparison = Comparison()
    for name, request in sent.items():
        comparison.add(
            Arrival(DEPARTURES, name, request.due_ns + 11 * MS_NS, {"id": name}, True), expected[name]
        )
    lags = TopicLags(
        {"raw": [2.0] * count}, {name: (request.sent_ns + MS_NS) // 1000 for name, request in sent.items()}
    )
    fields: dict[str, Any] = {
        "sent": sent, "expected": expected, "comparison": comparison, "topic_lags": lags, "rate": 1, "seconds": 5.0,
        "trigger": "micro-batch", "start_seconds": 9.0, "cpu_seconds": {"ingest": 1.234}, "rss_bytes": {"ingest": 5},
    }  # fmt: skip
    return DemoRun(**(fields | changes))


def test_a_run_without_problems():
    numbers = report(make())
    assert {name: numbers[name] for name in ("accepted", "delivered", "lost", "duplicates", "dead_lettered")} == {
        "accepted": 4, "delivered": 4, "lost": 0, "duplicates": 0, "dead_lettered": 0
    }  # fmt: skip
    assert numbers["lag_ms"] == {"p50": 10.0, "p95": 10.0, "p99": 10.0, "max": 10.0}, (
        "sender's first byte to answer"
    )
    assert numbers["lag_from_due_ms"]["max"] == 11.0
    assert numbers["lag_from_accepted_ms"]["max"] == 9.0
    assert numbers["answer_ms"]["p50"] == 3.0
    assert numbers["hops"]["raw"]["p50"] == 2.0
    assert numbers["cpu_seconds"] == {"ingest": 1.23}
    assert numbers["longest_pause_ms"] == 1000.0
    assert is_good(numbers)
    assert len(tables(numbers)) == 3


def test_the_tables_fit_80_columns():
    console = Console(width=80, file=io.StringIO(), record=True)
    for table in tables(report(make())):
        print_table(table, console)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "destination, since due time" in text


def test_an_event_that_misses_one_of_its_destinations_is_lost():
    demo_run = make()
    demo_run.expected["e2"][ALERTS] = {"id": "e2"}
    numbers = report(demo_run)
    assert (numbers["delivered"], numbers["lost"]) == (3, 1)
    assert not is_good(numbers)


def test_a_dead_letter_is_not_lost_and_not_good():
    demo_run = make()
    del demo_run.comparison.arrived[DEPARTURES, "e1"]
    demo_run.topic_lags.dead.add("e1")
    numbers = report(demo_run)
    assert (numbers["delivered"], numbers["lost"], numbers["dead_lettered"]) == (3, 0, 1)
    assert not is_good(numbers)


def test_an_event_that_was_not_accepted_is_not_lost():
    demo_run = make()
    demo_run.sent["e3"] = SentEvent(0, 0, 0, 503)
    demo_run.sent["e4"] = SentEvent(0, 0, 0, 0)
    numbers = report(demo_run)
    assert (numbers["accepted"], numbers["delivered"], numbers["refused"], numbers["unanswered"]) == (
        2,
        2,
        1,
        1,
    )
    assert not is_good(numbers), "a run that was refused something has not shown what it should"


@pytest.mark.parametrize(
    ("arrival", "counter"),
    [
        (Arrival(DEPARTURES, "e1", 0, {"id": "e1"}, True), "duplicates"),
        (Arrival(ALERTS, "e1", 0, {"id": "e1"}, True), "mismatched"),
        (Arrival(DEPARTURES, "other", 0, {}, True), "unknown"),
    ],
)
def test_every_unexpected_delivery_is_counted(arrival, counter):
    demo_run = make()
    demo_run.comparison.add(arrival, demo_run.expected.get(arrival.id))
    assert getattr(demo_run.comparison, counter) == 1
    assert not is_good(report(demo_run))


def test_a_wrong_value_is_reported():
    comparison = Comparison()
    comparison.add(
        Arrival(DEPARTURES, "e1", 0, {"id": "e1", "delay": 3}, True), {DEPARTURES: {"id": "e1", "delay": 2}}
    )
    assert comparison.mismatched == 1
    assert comparison.examples == ["/departures got e1 with delay 3 instead of 2"]


def test_a_run_without_events_is_a_failure():
    assert not is_good(report(make(0)))


def test_quantiles_are_values_that_were_seen():
    assert quantiles(range(1, 101)) == {"p50": 50, "p95": 95, "p99": 99, "max": 100}
    assert quantiles([7.0]) == {"p50": 7.0, "p95": 7.0, "p99": 7.0, "max": 7.0}
    assert quantiles([]) == {"p50": None, "p95": None, "p99": None, "max": None}
