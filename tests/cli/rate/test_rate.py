"""The evaluation of a rating, and a rating of a real mesh."""

import io
import json
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import orjson
import pytest
from rich.console import Console

from hifi.runtime.errors import Misconfigured
from hifi_cli.demo.expected import ALERTS, CANCELLATIONS, DEPARTURES
from hifi_cli.demo.verify import Arrival, Comparison, RequestLogReader, SentEvent, read_send_log
from hifi_cli.demo.workspace import Workspace
from hifi_cli.display.tables import print_table
from hifi_cli.rate.capacity import bottleneck, needs
from hifi_cli.rate.chart import chart
from hifi_cli.rate.event_load import NOTES, EventLoad, read_sizes
from hifi_cli.rate.rate_search import RateSearch
from hifi_cli.rate.rating import Rating
from hifi_cli.rate.report import footnotes, is_whole, line, report, tables
from hifi_cli.rate.step import ResourceUse, failure_reason, measure_step, step_report

SECOND_NS = 1_000_000_000
MS_NS = 1_000_000
USED = ResourceUse(
    seconds=10,
    cpu_seconds={"ingest": 2, "enrich": 4, "kafka": 1},
    sending_cpu_seconds={"ingest": 2, "enrich": 4, "kafka": 1},
    outside_cpu_seconds={"sender": 1, "destination": 1},
    rss_bytes={"ingest": 1, "enrich": 2, "kafka": 3},
    waiting={"normalize": 0, "enrich": 5},
    machine_share=0.5,
    load_average=1,
    late_share=0,
)


def climb(limit, first=100.0, factor=2.0):
    """The rates that a search tries, each once, with a mesh that sustains `limit`."""
    search = RateSearch(first, factor)
    tried_rates: list[int] = []
    while (rate := search.next()) is not None:
        if not tried_rates or tried_rates[-1] != round(rate):
            tried_rates.append(round(rate))
        search.record(rate, sustained=rate <= limit)
    return tried_rates, search


@pytest.mark.parametrize("limit", [100, 130, 777, 12_345])
def test_the_search_comes_close_to_the_limit_from_below(limit):
    tried_rates, search = climb(limit)
    assert search.sustained <= limit < search.failed <= search.sustained * 1.12
    assert tried_rates[0] == 100
    assert len(tried_rates) < 15


def test_a_search_that_begins_too_high_goes_down():
    tried_rates, search = climb(30)
    assert tried_rates[:3] == [100, 50, 25]
    assert search.sustained <= 30 < search.failed <= search.sustained * 1.12
    assert climb(1)[1].sustained is None


def test_a_rate_fails_after_two_failures_in_a_row():
    search = RateSearch(100, 2)
    for rate, sustained in [(100, True), (200, False), (200, True), (400, False), (400, False)]:
        assert search.next() == rate
        search.record(rate, sustained=sustained)
    assert (search.sustained, search.failed) == (200, 400)
    assert 200 < (search.next() or 0) < 400


def test_a_rate_that_failed_during_warm_up_is_tried_again_at_the_end():
    search, limit, tried_rates = RateSearch(100, 2), 150, []
    while (rate := search.next()) is not None:
        tried_rates.append(round(rate))
        search.record(rate, sustained=rate <= limit)
        limit = 300 if len(tried_rates) == 5 else limit
    assert tried_rates[:3] == [100, 200, 200]
    assert tried_rates.count(200) == 3, "it holds the third time, and what is above is looked at"
    assert search.sustained is not None
    assert search.failed is not None
    assert search.sustained <= 300 < search.failed <= search.sustained * 1.12
    assert tried_rates[-1] == round(search.failed), "the last try was of what failed, and it failed again"


def test_the_number_of_tries_is_bounded():
    assert len(climb(float("inf"))[0]) == 20


def make(count=100, lag_ms=10, rate=10.0, used=USED, growth_ms=0, missing=()):
    """Event n is due at n / rate and arrives `lag_ms`, and `growth_ms` for each before it, later."""
    sent_events = {
        f"e{n}": SentEvent(due, due, due + MS_NS, 202)
        for n in range(count)
        for due in [round((n / rate + 1) * SECOND_NS)]
    }
    expected = {name: {DEPARTURES: {"id": name}} for name in sent_events}
    comparison = Comparison()
    for number, (name, request) in enumerate(sent_events.items()):
        if name not in missing:
            at_ns = request.due_ns + round((lag_ms + number * growth_ms) * MS_NS)
            comparison.add(Arrival(DEPARTURES, name, at_ns, {"id": name}, True), expected[name])
    return measure_step(rate, sent_events, expected, comparison, used)


def test_a_step_without_problems_is_sustained():
    step = make()
    assert step.whole
    assert step.lag_ms["p95"] == 10
    assert failure_reason(step, 1000) is None
    assert step.per_million["ingest"] == pytest.approx(20_000)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (make(missing={"e7"}), "1 events were lost"),
        (make(lag_ms=1001), "p95 is above 1,000 ms"),
        (make(growth_ms=30), "p95 is above 1,000 ms"),
        (make(growth_ms=20, lag_ms=1), "p95 is above 1,000 ms"),
        (make(used=replace(USED, late_share=0.5)), "the sender was late"),
        (make(count=0), "p95 is above"),
    ],
)
def test_why_a_rate_is_not_sustained(step, reason):
    assert (failure_reason(step, 1000) or "").startswith(reason)


def test_a_growing_backlog_fails_before_the_lag_does():
    step = make(growth_ms=40, lag_ms=1)
    assert step.arrived_share < 0.85
    assert (failure_reason(step, 60_000) or "").startswith("a backlog grows")


def test_one_late_micro_batch_in_a_short_step_is_not_a_backlog():
    short = replace(make(growth_ms=40, lag_ms=1), used=replace(USED, seconds=3))
    assert short.arrived_share < 0.85
    assert failure_reason(short, 60_000) is None


def test_lag_is_measured_from_the_scheduled_time():
    sent_events = {"a": SentEvent(0, 500 * MS_NS, 600 * MS_NS, 202)}
    comparison = Comparison()
    comparison.add(Arrival(DEPARTURES, "a", 700 * MS_NS, {}, True), {DEPARTURES: {}})
    assert measure_step(1, sent_events, {"a": {DEPARTURES: {}}}, comparison, USED).lag_ms["p95"] == 700


def limit(**changes):
    return bottleneck(make(used=replace(USED, **changes)), 2, {"ingest": 1, "enrich": 1}).service


def test_the_bottleneck_is_a_full_event_loop_or_the_largest_share_of_a_full_machine_or_the_largest_backlog():
    assert limit(sending_cpu_seconds={"ingest": 9, "enrich": 9.5}) == "ingest"
    assert limit(machine_share=0.97) == "enrich", "it uses most"
    assert limit(waiting={"normalize": 500, "enrich": 5}) == "normalize", "50 s behind at 10 ev/s"
    assert limit(waiting={"retrier": 500}) == "ingest", (
        "what waits for its time is not behind; 20 % of one core"
    )


def test_the_load_is_carried_after_the_loss_of_one_instance():
    need = needs({"ingest": 200, "egest": 100, "enrich": 500, "kafka": 100}, 10_000, partitions=2)
    assert need["ingest"].instances == 4, "2 cores at 80 % each are 3 instances, and one that may be gone"
    assert need["egest"].instances == 3
    assert (need["enrich"].instances, need["enrich"].cores) == (2, 5)
    assert "7 core(s)" in need["enrich"].note
    assert "2 partitions" in needs({"egest": 300}, 10_000, partitions=2)["egest"].note


def test_lines_and_tables_fit_80_columns():
    step = make(lag_ms=12_345)
    numbers = {
        "rated": step_report(make(), 1000), "steps": [], "planned_for": 12_345.6,
        "needs": {"enrich": {"instances": 2, "note": "1 active on 12 core(s), 1 standby"}},
        "headroom": {"rate": 30_000, "core_shares": {"sender": 0.5, "destination": 0.25}},
        "warm_up": step_report(make(missing={"e7"}), 1000),
    }  # fmt: skip
    console = Console(width=80, file=io.StringIO(), record=True)
    for table in tables(numbers):
        print_table(table, console)
    text = "\n".join(
        [console.export_text(), line(step, None), line(step, failure_reason(step, 1000)), *footnotes(numbers)]
    )
    assert max(map(len, text.splitlines())) <= 80, text
    assert "…" not in text
    assert "standby" in text


async def test_a_loss_while_the_mesh_warms_up_fails_the_rating_and_is_reported(tmp_path, monkeypatch):
    async def rated(*steps):
        monkeypatch.setattr(Rating, "step", AsyncMock(side_effect=steps))
        monkeypatch.setattr(Rating, "_measure_headroom", AsyncMock(return_value=None))
        mesh = SimpleNamespace(instances={}, partitions=1, plan=SimpleNamespace(trigger="auto"))
        workspace = Workspace(tmp_path, 1, 2, write_key="key")
        load_test: Any = SimpleNamespace(mesh=mesh, workspace=workspace, start=AsyncMock())
        rating = Rating(load_test, RateSearch(10, 2, 1), EventLoad(), 1, 1000, lambda *_: None)
        await rating.run()
        numbers = report(rating, 2, None)
        assert len(numbers["steps"]) == 1, "the rate of the warm-up does not count"
        return is_whole(rating), numbers["warm_up"]["lost"], footnotes(numbers)[-1]

    whole, lost_count, note = await rated(make(missing={"e7"}), make())
    assert (whole, lost_count) == (False, 1)
    assert note == "While the mesh warmed up, 1 events were lost and 0 arrivals were wrong."
    assert (await rated(make(lag_ms=1001), make()))[:2] == (True, 0), "it may be slow"


def test_the_chart_is_an_svg_with_its_labels():
    steps = [
        step_report(make(rate=rate, lag_ms=lag), 1000)
        for rate, lag in ((10.0, 12), (20.0, 340), (40.0, 2000))
    ]
    numbers = {"slo_ms": 1000, "rated": steps[1], "steps": steps}
    root = ET.fromstring(chart(numbers, "a < b"))  # noqa: S314 - made by this test
    label_texts = {"".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"a < b", "rated", "p95", "ingest"} <= label_texts
    assert ET.fromstring(chart(numbers | {"rated": None, "steps": steps[:1]}, "one")) is not None  # noqa: S314 - as above


@pytest.mark.parametrize(
    ("text", "sizes"), [(None, (0, 0)), ("200-64KiB", (200, 65536)), ("1MiB", (2**20, 2**20))]
)
def test_sizes_are_parsed(text, sizes):
    assert read_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "64KiB-200", "0-5", "2MiB", "5-6-7", "big"])
def test_invalid_sizes_are_refused(text):
    with pytest.raises(Misconfigured, match="200-64KiB"):
        read_sizes(text)


@pytest.mark.slow
def test_padding_consists_of_other_flights_and_is_expected_unchanged(tmp_path):
    workspace = Workspace.at(tmp_path)
    load = EventLoad(100, 200, 65536)
    expected = load.write(workspace, 400, first=0)
    events = [orjson.loads(line) for line in workspace.events.read_bytes().splitlines()]
    sizes = sorted(len(orjson.dumps(event)) for event in events)
    assert sizes[0] < 600
    assert 40_000 < sizes[-1] <= 66_000
    assert 2000 < sizes[200] < 8000, "spread evenly over the logarithm"
    pads = [pad for event in events for pad in event.get(NOTES, ())]
    assert len(set(pads)) > 390, "not one repeated pad"
    for event in events:
        for path, data in expected[event["id"]].items():
            assert path == ALERTS or data.get(NOTES) == event.get(NOTES)
    [pipe] = load.shape(workspace.pipes())
    assert {destination.batch and destination.batch.size for destination in pipe.destinations} == {100}
    assert NOTES in (pipe.normalize.fields or ())


async def test_the_events_of_batches_are_logged_one_by_one(tmp_path):
    workspace = Workspace.at(tmp_path)
    destination = workspace.destination()
    await destination.start()
    await workspace.wait_for_destination()
    rows = workspace.write_events(250)
    # The destination takes the place of ingest.
    direct = Workspace(tmp_path, workspace.destination_port, workspace.destination_port, write_key="key")
    sender = direct.sender(float("inf"), 100)
    await sender.start()
    assert await sender.wait() == 0
    assert await workspace.counts() == 3, "requests"
    sent_requests = read_send_log(workspace.send_log)
    assert sent_requests.keys() == rows.keys()
    assert {request.status for request in sent_requests.values()} == {204}
    arrivals = list(RequestLogReader(workspace.request_log).read())
    assert sorted(arrival.id for arrival in arrivals) == sorted(rows)
    assert all(arrival.well_formed and arrival.data["id"] == arrival.id for arrival in arrivals)
    assert set(json.loads(sender.tail(1))) == {"late_max_ms", "late_share", "cpu_seconds"}
    await destination.kill()


async def test_a_batch_of_bare_data_is_read_too(tmp_path):
    file = tmp_path / "requests.log"
    body = b'[{"id":"a"},{"id":"b"}]'
    head = {"path": CANCELLATIONS, "first_ns": 1, "answered_ns": 2, "headers": {}, "bytes": len(body)}
    file.write_bytes(orjson.dumps(head) + b"\n" + body + b"\n")
    assert [(arrival.id, arrival.well_formed) for arrival in RequestLogReader(file).read()] == [
        ("a", True),
        ("b", True),
    ]


def folders():
    return set(Path(tempfile.gettempdir()).glob("hifi-rate-*"))


# Faster: the tests above evaluate a rating; test_every_flight_arrives_exactly_as_declared measures a mesh
@pytest.mark.more
@pytest.mark.timeout(400)
def test_a_mesh_is_rated(start_hifi, tmp_path):
    folders_before = folders()
    numbers, picture = tmp_path / "rate.json", tmp_path / "rate.svg"
    options = (
        "--from",
        250,
        "--step",
        2,
        "--seconds",
        3,
        "--slo",
        "30s",
        "--batch",
        10,
        "--size",
        "200-8KiB",
    )
    # Ingest refuses events above its limit, so that the search ends soon.
    command = start_hifi(
        "rate", *options, "--report", numbers, "--chart", picture, HIFI_INGEST_PIPE_RATE="400"
    )
    assert command.wait(390) == 0, command.text()
    report = json.loads(numbers.read_text())
    assert 1 <= report["rated"]["rate"] <= 1000
    assert {step["lost"] + step["wrong"] for step in report["steps"]} == {0}
    assert report["ended"] != "no rate failed"
    assert set(report["needs"]) == {"ingest", "normalize", "enrich", "egest", "retrier", "observe", "kafka"}
    assert report["headroom"]["rate"] > report["rated"]["rate"]
    assert f"Sustained {report['rated']['rate']:,.0f} ev/s with p95" in command.text()
    assert "<svg" in picture.read_text()
    command.wait_gone()
    assert folders() == folders_before, "the temporary folder is removed"
