"""Sections of the benchmark page for results, and the declarations of its loads. Pure: nothing is started."""

import json
from pathlib import Path
from typing import Any

import idle_control_section
import pytest
import slow_minute_sections
from backlog_drain import drained
from backlog_drain import shape as shape_backlog
from benchmarks_page import CASES as SHOWN_CASES
from benchmarks_page import KINDS as SHOWN_KINDS
from benchmarks_page import details
from benchmarks_summary import MESH, summary
from cases import CASES
from dead_destination import ALIVE, DEAD
from growth_sections import ALIVE as SHOWN_ALIVE
from growth_sections import CHAIN, TITLES, sections, trouble
from growth_sections import DEAD as SHOWN_DEAD
from kill_recovery import flowing
from larger_load import FLEET, LargerLoad
from load_round import LoadRound, lag_figures
from markdown_tables import goal
from pass_through import SERVICES, section
from rows import KINDS, LAGS

from hifi_cli.demo.verify import Comparison, SentEvent
from hifi_cli.demo.workspace import Workspace
from hifi_http.declaration import HttpDestination

SECOND_NS = 1_000_000_000


def step(cpu=1000.0, p95=100.0, **changes):
    return {
        "rate": 300.0, "failed": None, "lost": 0, "wrong": 0, "refused": 0,
        "lag_ms": {"p50": 50.0, "p95": p95, "p99": 150.0, "max": 160.0},
        "answer_ms": {"p95": 5.0}, "longest_pause_ms": 30.0,
        "cpu_seconds_per_million": {"ingest": cpu / 2, "enrich": cpu / 2},
        "core_shares": {"ingest": 0.4, "enrich": 0.2},
        "rss_bytes": {"enrich": 800 * 2**20},
        "load_average": 1.5,
    } | changes  # fmt: skip


def point(*steps, instances=None):
    return {"start_seconds": 17.5, "instances": instances or {"ingest": 1}, "warm_up": step(), "steps": steps}


def runs(*points):
    return [{"at": "now", "points": run_points} for run_points in points]


def section_text(kind, *points):
    return "\n".join(sections({kind: runs(*points)}))


@pytest.mark.parametrize("kind", TITLES)
def test_growth_is_told_with_its_goal_and_by_how_much(kind):
    text = section_text(kind, {"one": point(step(1000)), "many": point(step(1170))})
    assert "| many | 1 | 300 | 1,170 | 1.17 | 50 | 100 | 17.5 | 800 | 1.5 | - |" in text
    assert "at most 1.3 times. It is 1.17 times: reached, 10% below the bound" in text
    missed = section_text(kind, {"one": point(step(1000)), "many": point(step(1950))})
    assert "It is 1.95 times: missed, 50% above the bound" in missed


def test_figures_are_medians_and_ratios_are_of_the_same_run():
    text = section_text(
        "pipes",
        {"one": point(step(100)), "many": point(step(200))},
        {"one": point(step(1000)), "many": point(step(1000))},
        {"one": point(step(300)), "many": point(step(360))},
    )
    assert "| one | 3 | 300 | 300 |" in text
    assert "| many | 3 | 300 | 360 | 1.20 |" in text


@pytest.mark.parametrize("counter", ["lost", "wrong", "refused"])
def test_no_figure_of_a_run_that_went_wrong(counter):
    text = section_text(
        "pipes", {"one": point(step()), "many": point(step(4321), step(4321, **{counter: 2}))}
    )
    assert "4,321" not in text
    assert "Not known" in text
    assert "a run went wrong: " in text


@pytest.mark.parametrize("counter", ["lost", "wrong"])
def test_no_figure_where_the_warm_up_went_wrong(counter):
    assert trouble(point(step(4321)) | {"warm_up": step(**{counter: 1})})


def test_a_cold_mesh_may_refuse_events_and_that_is_told():
    cold = point(step(4321)) | {"warm_up": step(refused=1536)}
    assert not trouble(cold)
    text = section_text("pipes", {"one": point(step()), "many": cold})
    assert "4,321" in text
    assert "cold, it refused 1,536 events of the warm-up" in text


def test_a_row_that_failed_says_why_and_the_others_stay():
    text = section_text("brokers", {"1 brokers": point(step()), "3 brokers": {"failed": "not ready\nlog"}})
    assert "a run went wrong: not ready |" in text
    assert "| 1 brokers | 1 | 300 | 1,000 |" in text


def test_instances_say_what_each_got():
    text = section_text("instances", {"2 instances": point(step(), instances={"ingest": 2, "enrich": 1})})
    assert "| 2 instances | 20% | 0% | 20% |" in text


def test_lag_has_goals_beside_the_chain_and_in_milliseconds():
    lags = {"mesh, real-time": step(p95=50), CHAIN: step(p95=40), "mesh, micro-batch": step(p95=490)}
    text = section_text("lag", {name: point(lag) for name, lag in lags.items()})
    assert "| mesh, real-time | 1 | 300 | 50 | 50 | 150 | 30 | 5.0 | 1,000 | - |" in text
    assert (
        "p95, relative to FastStream, tuned batches, at most 1.5 times. It is 1.25 times: reached, 17%"
        in text
    )
    assert "mesh, micro-batch: p95 at most 1000 ms. It is 490 ms: reached, 51% below the bound" in text
    assert CHAIN in LAGS


def test_the_summary_has_what_was_measured_and_nothing_else():
    lags = {"mesh, real-time": point(step(400, p95=50)), CHAIN: point(step(800, p95=40))}
    first_result = {"micro-batch": {"lag_ms": {"p50": 50, "p95": 300}, "lost": 0}}
    broken = {"rolling restart": {"failed": "no mesh"}}
    rated = {
        f"{name}, single events": [{"rated": {"rate": rate}}]
        for name, rate in ((MESH, 300.0), (CHAIN, 200.0))
    }
    rows = {"lag": runs(lags), "first_minute": runs(first_result), "rolling": runs(broken)}
    text = summary({"rates": rated, "rows": rows})
    assert "| highest rate with a p95 below 1 s, single events, ev/s | 300 | 200 | 1.50 |" in text
    assert "CPU time of a million events, s | 400 | 800 | 0.50 |" in text
    assert "| first minute after a start (micro-batch): p95, ms | 300 | - | - |" in text
    assert "rolling" not in text
    assert "batches of 100" not in text
    assert summary({}) == ""


def test_one_dead_destination():
    assert (SHOWN_ALIVE, SHOWN_DEAD) == (ALIVE, DEAD)
    text = section_text("dead", {ALIVE: point(step(p95=100)), DEAD: point(step(p95=121))})
    assert "at most 1.1 times. It is 1.21 times: missed, 10% above the bound" in text
    assert "| the last of them dead | 1 | 300 | 50 | 121 | 150 | - |" in text


def backlog_result(**changes):
    lag = {path: {"p50": 20.0, "p95": 40.0} for path in ("/away", "/other")}
    return {
        "tiers": "2s,5s,10s", "configured": 500.0, "fresh_rate": 100.0, "refused": 24000, "lost": 0, "wrong": 0,
        "in_retry_topics": 23500, "first_after_s": 12.5, "per_second": 480.0, "fullest_second": 505,
        "drained_s": 60.0, "before_ms": lag, "during_ms": lag | {"/away": {"p50": 50.0, "p95": 80.0}},
    } | changes  # fmt: skip


def test_a_backlog_tells_its_drain_rate_beside_what_is_declared():
    text = section_text("backlog", {"b": backlog_result()})
    assert "rate limit is 500 requests a second. It received 480 a second" in text
    assert "96% of the limit" in text
    assert "2s,5s,10s instead of hours" in text
    assert "| this destination | 100 | 40 | 80 | 2.00 |" in text
    assert "480" not in section_text("backlog", {"b": backlog_result(lost=1)})


def test_the_drain_rate_is_of_the_drain_alone():
    times = [10 * SECOND_NS + n * SECOND_NS // 500 for n in range(5000)]
    drain = drained(times, 4 * SECOND_NS)
    assert drain["first_after_s"] == 6
    assert drain["per_second"] == pytest.approx(500)
    assert drain["fullest_second"] == 500
    assert drain["drained_s"] == 10


def passed(**costs):
    base_costs = {"per_second": 9000, "cpu_seconds_per_million": 50.0, "broker_cpu_seconds_per_million": 40.0}
    return {
        name: {
            way_name: base_costs | {"cpu_seconds_per_million": costs.get(name, 50.0)}
            for way_name in ("flow", "at_once")
        }
        for name in SERVICES
    }


def test_a_node_stands_beside_its_bare_means_of_the_same_run():
    text = section([passed(), passed(normalize=90.0), passed(normalize=400.0)])
    assert "| normalize | 3 | 90 | 1.80 | 40 | 9,000 | 90 | 1.80 | 40 |" in text
    assert "at 2,000 messages/s, at most 2 times. It is 1.80 times: reached, 10% below the bound" in text
    assert "missed" not in text
    assert "It is 4.00 times: missed" in section([passed(normalize=200.0)])


def test_starts_and_kills():
    text = section_text("start", {"cold": {"seconds": [40.0]}, "warm": {"seconds": [17.0, 19.0]}})
    assert "| warm | 2 | 18.0 | - |" in text
    kill = {
        "flowing_again_s": 1.25,
        "longest_pause_s": 1.5,
        "not_accepted": 3,
        "lost": 0,
        "duplicates": 1,
        "wrong": 0,
    }
    text = section_text("restart", {"egest-1": kill, "enrich-1": kill | {"lost": 2}})
    assert "| egest-1 | 1 | 1.25 | 1.50 | 3 | 0 | 1 | 0 | - |" in text
    assert "| enrich-1 | 1 | - | - | 3 | 2 | 1 | 0 | a run went wrong" in text


def test_a_kill_counts_to_the_first_event_that_was_due_later():
    sent_events = {
        name: SentEvent(due, due, due, 202)
        for name, due in (("a", 1), ("b", 3 * SECOND_NS), ("c", 4 * SECOND_NS))
    }
    arrival_ns = {("/x", "a"): 5 * SECOND_NS, ("/x", "b"): 6 * SECOND_NS}
    expected: dict[str, dict[str, Any]] = {name: {"/x": {}} for name in sent_events}
    recovery = flowing("egest-1", sent_events, expected, Comparison(arrived=arrival_ns), 2 * SECOND_NS)
    assert (recovery["flowing_again_s"], recovery["longest_pause_s"], recovery["lost"]) == (4, 1, 1)


def test_a_goal_that_nothing_is_known_of_is_not_reached():
    assert "reached" not in goal("what", None, 1.3)


def test_every_case_and_kind_is_shown_or_told_as_missing():
    assert set(SHOWN_CASES) == set(CASES)
    assert set(SHOWN_KINDS) == set(KINDS)
    [file] = sorted(Path("bench/results").glob("20*.json"))[-1:]
    results = json.loads(file.read_text())
    results["notes"], results["rows"] = [], {"pipes": runs({"1 pipes": point(step())})}
    text = details(results, file.name)
    assert "Not measured yet: " in text
    [notice] = [line for line in text.splitlines() if "Not measured yet" in line]
    assert "brokers" in notice
    assert "pipes" not in notice


@pytest.mark.parametrize(
    "load",
    [
        LargerLoad(pipes=3),
        LargerLoad(ten=True),
        LargerLoad(ten=True, tenth_port=1),
        LargerLoad(sharing=100),
        LargerLoad(rows=20),
        LargerLoad(rows=1000),
    ],
)
def test_a_load_declares_what_it_expects(tmp_path, load):
    stage = Workspace(tmp_path, 1, 2)
    pipes = load.shape(stage.pipes())
    expected = load.write(stage, 200, 0)
    assert len(pipes) == load.pipes
    assert {key.env for pipe in pipes for key in pipe.source.keys} == {"FLIGHTS_KEY", *load.secrets()}
    paths = {f"/{str(destination.url).rpartition('/')[2]}" for destination in pipes[0].destinations}
    assert {path for deliveries in expected.values() for path in deliveries} <= paths
    if load.rows:
        file = Path(str(pipes[0].enrich.lookups[FLEET].file))
        table = {row["code"]: row["size"] for row in map(json.loads, file.read_text().splitlines())}
        assert len(table) == load.rows
        wholes = [
            event for deliveries in expected.values() for event in deliveries.values() if "carrier" in event
        ]
        assert all(event[FLEET] == table[event["carrier"]] for event in wholes)


def test_the_pipe_of_the_backlog_has_a_rate(tmp_path):
    [pipe] = shape_backlog(Workspace(tmp_path, 1, 2).pipes())
    away_destination, other_destination = pipe.destinations
    assert (away_destination.rate, away_destination.breaker.probe, other_destination.rate) == (500, 1, None)
    assert away_destination.when is None
    assert isinstance(away_destination, HttpDestination)
    assert str(away_destination.url).endswith("/away")


def test_slow_minutes_show_their_slowest_part() -> None:
    minute = {
        "start_seconds": 11.5, "lost": 0, "wrong": 0, "duplicates": 2, "lag_ms": {"p50": 50, "p95": 300},
        "lag_ms_by_10_s": [{"p95": 900}, {"p95": 80}],
    }  # fmt: skip
    (text,) = slow_minute_sections.sections({"first_minute": runs({"real-time": minute})})
    assert "| real-time | 11.5 | 50 | 300 | 0 | 2 | 900 | - |" in text
    (text,) = slow_minute_sections.sections({"overload": runs({"8,000 ev/s offered": {"failed": "no mesh"}})})
    assert "no mesh |" in text


def test_an_idle_control_plane_is_compared_with_the_mesh_without_it() -> None:
    shares = {"ingest": 0.4, "kafka": 0.6, "rollout": 0.01, "deploy": 0.02, "scale": 0.005, "manage": 0.005}
    (text,) = idle_control_section.sections({"idle_control": runs({"idle": point(step(core_shares=shares))})})
    assert "| 300 | 100.0 | 1.0 | 2.0 | 0.5 | 0.5 | 4.0 | - |" in text
    assert "reached, 20% below the bound" in text
    failed_run = {"idle": {"failed": "no mesh"}}
    (text,) = idle_control_section.sections({"idle_control": runs(failed_run)})
    assert "no mesh |" in text
    assert "Not known" in text


def test_a_round_of_load_is_counted_by_slices_of_its_due_times() -> None:
    second = 1_000_000_000
    sent_events = {
        str(number): SentEvent(number * second, number * second, number * second + 5_000_000, 202)
        for number in range(1, 5)
    }
    sent_events["refused"] = SentEvent(second, second, 3 * second, 429)
    arrival_ns = {("/w", name): sent_events[name].due_ns + int(name) * 10_000_000 for name in "123"}
    verdict = Comparison(arrived=arrival_ns, duplicates=1)
    load_round = LoadRound(sent_events, {name: {"/w": {}} for name in sent_events}, verdict)
    assert load_round.totals() == {"sent": 5, "refused": 1, "lost": 1, "duplicates": 1, "wrong": 0}
    assert [lags["max"] for lags in load_round.lags_ms(2)] == [20, 30]
    assert load_round.answer_ms(accepted=False) == {"p50": 2000, "p95": 2000, "max": 2000}
    assert lag_figures([]) == {}
