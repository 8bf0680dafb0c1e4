"""Steps on real Spark, with a log in memory: results and refused events are those of an oracle, whatever dies."""

import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.support.state.stamped_log import OTHER, PIPE, START_MS, StampedLog, disordered
from tests.support.state.step_bench import (
    JOIN_SOURCE,
    KEEPING_SOURCE,
    Killed,
    StepBench,
    shown,
    step_pipe,
)
from tests.support.state.window_oracle import Outcome, outcome

from hifi.pipe.sources.step import StepSource
from hifi.runtime.errors import Misconfigured
from hifi_state import step_turn
from hifi_state.fold import range_bound
from hifi_state.fold.progress import Progress

TUMBLING = {"tumbling": "10s"}
SLIDING = {"size": "30s", "every": "10s"}
SESSION = {"session": "2s"}
LATENESS_MS = 5000
GAP_MS = 2000
EACH = {"each": {"trailing": "10s"}}
FIRST = {"first": "2s"}
JOIN, KEEPING_JOIN = JOIN_SOURCE, KEEPING_SOURCE
LIMITED_EACH = {**EACH, "limit": 2}
LIMITED_FIRST = {**FIRST, "limit": 1}
LIMITED_JOIN = {**KEEPING_JOIN, "limit": 1}
KINDS = [
    *(TUMBLING, SLIDING, SESSION, EACH, FIRST, JOIN, KEEPING_JOIN),
    *(LIMITED_EACH, LIMITED_FIRST, LIMITED_JOIN),
]
LOSSES = [
    pytest.param(False, id="with its file"),
    pytest.param(True, id="without its file", marks=pytest.mark.more),
]
KILLS = [
    ("within the results", KEEPING_JOIN, True),
    ("after the results", SLIDING, False),
    ("before the offset", SLIDING, False),
]
MORE_KILLS = [
    ("before folds", LIMITED_EACH, True),
    ("after folds", SESSION, False),
    ("within the results", SLIDING, True),
    ("before folds", SLIDING, True),
    ("within the results", EACH, True),
    ("after folds", LIMITED_EACH, True),
    ("within the results", SLIDING, False),
    ("within the results", SESSION, False),
    ("within the results", SESSION, True),
    ("after the results", SLIDING, True),
    ("before folds", SLIDING, False),
    ("after folds", SLIDING, False),
    ("after folds", SLIDING, True),
    ("after folds", SESSION, True),
    ("within the results", EACH, False),
    ("after folds", FIRST, True),
    ("after folds", FIRST, False),
    ("after the results", JOIN, False),
    ("before folds", KEEPING_JOIN, False),
    ("after folds", KEEPING_JOIN, True),
    ("after folds", KEEPING_JOIN, False),
    ("after folds", LIMITED_JOIN, True),
    ("after folds", LIMITED_FIRST, True),
    ("before folds", LIMITED_JOIN, False),
    ("before the offset", JOIN, True),
    ("before the offset", SLIDING, True),
]


def more(*values: Any) -> Any:
    """A row of parameters for the second tier."""
    return pytest.param(*values, marks=pytest.mark.more)


def cuts_of(stamped_log: StampedLog, seed: int, batches: int) -> list[dict[int, int]]:
    """Random ends of batches, the last one the whole log."""
    chance = random.Random(seed)
    ends = stamped_log.ends()
    places = {
        partition: sorted(chance.randrange(0, end + 1) for _ in range(batches - 1))
        for partition, end in ends.items()
    }
    return [
        *({partition: places[partition][batch] for partition in ends} for batch in range(batches - 1)),
        ends,
    ]


def expected(stamped_log: StampedLog, cuts: Sequence[Mapping[int, int]], step: StepSource) -> Outcome:
    window = step.window
    return outcome(
        stamped_log,
        cuts,
        step.length_ms,
        window.every_ms if window else 0,
        step.lateness_ms,
        gap_ms=step.gap_ms,
        trailing_ms=step.length_ms if step.each else None,
        first_ms=step.length_ms if step.first else None,
        within_ms=step.length_ms if step.join else None,
        keeps_unmatched=step.join is not None and step.join.unmatched == "keep",
        limit=step.limit,
    )


def flight(carrier: str | None = "A", delay: int = 20) -> dict[str, Any]:
    return {"carrier": carrier, "delay": delay, "price": 1.5, "cancelled": False}


@pytest.mark.parametrize(
    "window",
    list(map(more, KINDS)),
)
async def test_results_and_refused_events_are_those_of_the_oracle(
    spark: SparkSession, tmp_path: Path, window: dict[str, Any]
) -> None:
    stamped_log = disordered(1, 4, 400, empty=[2], joined="join" in window)
    cuts = cuts_of(stamped_log, 1, 4)
    bench = StepBench(spark, stamped_log, step_pipe(window), tmp_path)
    await bench.run(cuts)
    oracle = expected(stamped_log, cuts, bench.step)
    assert shown(bench.results) == oracle.results
    assert bench.letters == oracle.refused
    assert len(oracle.results) > 30
    limited = {"key-limit"} if bench.step.limit else set()
    assert {reason for _, reason in oracle.refused} == {"late", "future", "no-key", "replayed"} | limited


@settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 2**32),
    batches=st.integers(1, 3),
    window=st.sampled_from(KINDS),
)
async def test_any_disorder_cut_anywhere_gives_the_results_of_the_oracle(
    spark: SparkSession, seed: int, batches: int, window: dict[str, Any]
) -> None:
    stamped_log = disordered(seed, 3, 120, joined="join" in window)
    cuts = cuts_of(stamped_log, seed, batches)
    with TemporaryDirectory() as folder:
        bench = StepBench(spark, stamped_log, step_pipe(window), Path(folder))
        await bench.run(cuts)
    oracle = expected(stamped_log, cuts, bench.step)
    assert shown(bench.results) == oracle.results
    assert bench.letters == oracle.refused


@pytest.mark.parametrize(("point", "window", "is_lost"), [*KILLS, *(more(*kill) for kill in MORE_KILLS)])
async def test_each_result_is_written_once_whatever_dies(
    spark: SparkSession, tmp_path: Path, point: str, window: dict[str, Any], is_lost: bool
) -> None:
    stamped_log = disordered(7, 2, 200, joined="join" in window)
    cuts = cuts_of(stamped_log, 7, 3)
    bench = StepBench(spark, stamped_log, step_pipe(window), tmp_path)
    await bench.run(cuts[:1])
    bench.kill_at, bench.most_records = point, 50
    with pytest.raises(Killed):
        await bench.run(cuts[1:])
    if is_lost:
        bench.lose_files()
    await bench.run(cuts[1:])
    oracle = expected(stamped_log, cuts, bench.step)
    assert shown(bench.results) == oracle.results
    assert bench.letters.keys() == oracle.refused.keys()
    assert bench.committed == stamped_log.ends()


@pytest.mark.parametrize(
    ("kept", "declared", "is_lost"),
    [
        (TUMBLING, {"size": "1m", "every": "20s"}, True),
        more(SLIDING, EACH, False),
        more(TUMBLING, TUMBLING, False),
        more(TUMBLING, TUMBLING, True),
        more(SLIDING, {"tumbling": "7s"}, False),
        more(EACH, SLIDING, True),
        more(EACH, {"each": {"trailing": "20s"}}, False),
        more(FIRST, {"first": "8s"}, True),
    ],
)
async def test_a_change_takes_over_at_the_end_of_a_window_with_whole_windows(
    spark: SparkSession, tmp_path: Path, kept: dict[str, Any], declared: dict[str, Any], is_lost: bool
) -> None:
    stamped_log = disordered(9, 2, 500)
    cuts = cuts_of(stamped_log, 9, 4)
    bench = StepBench(spark, stamped_log, step_pipe(kept), tmp_path)
    kept_step = bench.step
    bench.kill_at, bench.survived = "within the results", 3
    with pytest.raises(Killed):
        await bench.run(cuts[:1])
    horizon_ms = Progress.decode(bench.kept).horizon_ms
    assert horizon_ms is not None
    bench.declare(step_pipe(declared, where="cancelled"))
    bench.kill_at, bench.survived, bench.most_records = "after folds", 0, 40
    with pytest.raises(Killed):
        await bench.run(cuts)
    takeover = Progress.decode(bench.kept).takeover
    assert takeover is not None
    at_ms = takeover.at_ms
    if is_lost:
        bench.lose_files()
    await bench.run(cuts)
    assert horizon_ms <= at_ms <= horizon_ms + bench.step.length_ms + 10_000
    assert not kept_step.window or not at_ms % kept_step.window.every_ms
    earlier = expected(stamped_log, cuts, kept_step).results
    later = expected(swapped(stamped_log), cuts, bench.step).results
    for body in later.values():
        if "cancelled" in body:  # the data of an event, as it is in the log
            body["cancelled"] = not body["cancelled"]
    assert shown(bench.results) == {
        **{place: body for place, body in earlier.items() if _ends_ms(place, kept_step) <= at_ms},
        **{place: body for place, body in later.items() if _ends_ms(place, bench.step) > at_ms},
    }
    assert {place[0] > at_ms for place in bench.results} == {False, True}


def _ends_ms(place: tuple[int, str], step: StepSource) -> int:
    """When a result is due: at the end of its window, or just after its event."""
    return place[0] if step.window else place[0] + 1


def swapped(stamped_log: StampedLog) -> StampedLog:
    """The same log, in which the flights are cancelled that are not."""
    result = StampedLog(len(stamped_log.partitions))
    result.partitions = [
        [
            replace(entry, data={**entry.data, "cancelled": not entry.data.get("cancelled", True)})
            for entry in entries
        ]
        for entries in stamped_log.partitions
    ]
    return result


async def test_a_torn_file_and_one_that_is_behind_are_made_good_from_the_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    stamped_log = disordered(8, 2, 200)
    cuts = cuts_of(stamped_log, 8, 4)
    bench = StepBench(spark, stamped_log, step_pipe(SLIDING), tmp_path)
    await bench.run(cuts[:1])
    earlier_files = {file: file.read_bytes() for file in tmp_path.iterdir()}
    await bench.run(cuts[1:2])
    bench.lose_files()
    for file, content in earlier_files.items():
        file.write_bytes(content)
    await bench.run(cuts[2:3])
    database = tmp_path / "carrier-delays.db"
    database.write_bytes(database.read_bytes()[: database.stat().st_size // 2])
    await bench.run(cuts[3:])
    assert shown(bench.results) == expected(stamped_log, cuts, bench.step).results


async def test_a_topic_that_is_made_again_is_no_end_to_wait_at(spark: SparkSession, tmp_path: Path) -> None:
    stamped_log = disordered(8, 2, 50)
    bench = StepBench(spark, stamped_log, step_pipe(TUMBLING), tmp_path)
    await bench.run([stamped_log.ends()])
    bench.available = {**stamped_log.ends(), 1: 3}
    with closing(await bench.turn()) as turn, pytest.raises(Misconfigured):
        await turn.round()


async def test_ranges_of_a_step_that_keeps_data_have_few_records(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_bound, "_MOST_WITH_DATA", 30)
    stamped_log = disordered(8, 1, 50)
    for window, largest in ((FIRST, 30), (TUMBLING, stamped_log.ends()[0])):
        (folder := tmp_path / next(iter(window))).mkdir()
        bench = StepBench(spark, stamped_log, step_pipe(window), folder)
        await bench.run([stamped_log.ends()])
        assert bench.largest_range == largest
        assert shown(bench.results) == expected(stamped_log, [stamped_log.ends()], bench.step).results


def standing_still(seconds: int) -> StampedLog:
    """A log whose partition 0 has an event each second, and whose partition 1 has two in the first one."""
    stamped_log = StampedLog(2)
    stamped_log.event(1, START_MS, START_MS, flight())
    stamped_log.event(1, START_MS + 100, START_MS + 100, flight())
    for second in range(seconds):
        stamped_log.event(0, START_MS + second * 1000, START_MS + second * 1000, flight())
    return stamped_log


async def test_a_partition_that_stands_still_holds_the_windows_and_nothing_is_dropped(
    spark: SparkSession, tmp_path: Path
) -> None:
    stamped_log = standing_still(100)
    first_cut = stamped_log.ends()
    for tenth in range(20):
        stamped_log.event(1, START_MS + 200 + tenth * 100, START_MS + 100_000, flight())
    bench = StepBench(spark, stamped_log, step_pipe(TUMBLING), tmp_path)
    await bench.run([first_cut])
    assert not bench.results
    second_cut = stamped_log.ends()
    stamped_log.heartbeat(1, 97_000)
    await bench.run([second_cut, stamped_log.ends()])
    assert not bench.letters
    oracle = expected(stamped_log, [first_cut, second_cut, stamped_log.ends()], bench.step)
    assert shown(bench.results) == oracle.results
    counts = [body["flights"] for body in oracle.results.values()]
    assert counts[0] == 10 + 22
    assert len(counts) > 5


async def test_a_large_file_waits_for_the_partition_that_stands_still_and_then_reads_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    stamped_log = standing_still(300)
    first_cut = stamped_log.ends()
    bench = StepBench(spark, stamped_log, step_pipe(EACH), tmp_path)
    bench.most_records, bench.most_file_bytes = 50, 40_000
    await bench.run([first_cut])
    assert bench.full_for == {1}
    read_count = Progress.decode(bench.kept).offsets[0]
    assert 50 < read_count < 250
    await bench.run([first_cut])
    assert Progress.decode(bench.kept).offsets[0] == read_count, "it waits"
    stamped_log.heartbeat(1, 300_000)
    await bench.run([stamped_log.ends()])
    assert bench.full_for == set()
    assert Progress.decode(bench.kept).offsets == stamped_log.ends()
    assert not bench.letters
    assert shown(bench.results) == expected(stamped_log, [first_cut, stamped_log.ends()], bench.step).results
    assert len(bench.results) > 250


@pytest.mark.parametrize("is_lost", LOSSES)
async def test_a_session_has_the_events_that_are_at_most_its_gap_apart_also_if_a_later_one_bridges_two(
    spark: SparkSession, tmp_path: Path, is_lost: bool
) -> None:
    stamped_log = StampedLog(1)
    cuts = [stamped_log.ends()]

    def add(carrier: str, *times_ms: int) -> None:
        for at_ms in times_ms:
            stamped_log.event(0, START_MS + at_ms, START_MS + 60_000, flight(carrier))
        cuts.append(stamped_log.ends())

    add("exact", 0, GAP_MS)
    add("apart", 0, GAP_MS + 1)
    add("bridged", 0, 2 * GAP_MS)
    add("bridged", GAP_MS)
    for second in range(1, 20, 2):
        add("long", second * 1000)
    add("end", 50_000)
    bench = StepBench(spark, stamped_log, step_pipe(SESSION), tmp_path)
    for cut in cuts:
        await bench.run([cut])
        if is_lost:
            bench.lose_files()
    stamped_log.heartbeat(0)
    cuts.append(stamped_log.ends())
    await bench.run(cuts[-1:])
    sessions = {
        (carrier, body["window_start"][17:23], body["window_end"][17:23]): body["flights"]
        for (_, carrier), [body] in bench.results.items()
    }
    seconds = START_MS // 1000 % 60
    assert sessions == {
        ("exact", *texts(seconds, 0, 4_000)): 2,
        ("apart", *texts(seconds, 0, 2_000)): 1,
        ("apart", *texts(seconds, 2_001, 4_001)): 1,
        ("bridged", *texts(seconds, 0, 6_000)): 3,
        ("long", *texts(seconds, 1_000, 21_000)): 10,
    }
    assert shown(bench.results) == expected(stamped_log, cuts, bench.step).results


@pytest.mark.parametrize("is_lost", LOSSES)
async def test_each_event_counts_those_of_its_key_and_the_first_ones_pass_on(
    spark: SparkSession, tmp_path: Path, is_lost: bool
) -> None:
    stamped_log = StampedLog(1)
    cuts = [stamped_log.ends()]

    def add(carrier: str, *times_ms: int) -> None:
        for at_ms in times_ms:
            stamped_log.event(0, START_MS + at_ms, START_MS + 90_000, flight(carrier))
        stamped_log.heartbeat(0)
        cuts.append(stamped_log.ends())

    add("exact", 0, 10_000)
    add("apart", 0, 10_001)
    add("same", 5_000, 5_000)
    add("back", 9_000)
    add("back", 3_000)
    add("long", *range(0, 20_000, 1_000))
    add("end", 35_000)
    add("long", 20_000, 29_000)
    add("later", 38_000)
    add("end", 60_000)
    add("later", 41_000)
    add("long", 40_001, 45_001)
    stamped_log.heartbeat(0, 30_000)
    cuts.append(stamped_log.ends())
    results = []
    for kind in (EACH, {"first": "10s"}):
        (folder := tmp_path / next(iter(kind))).mkdir()
        bench = StepBench(spark, stamped_log, step_pipe(kind, lateness="20s"), folder)
        for cut in cuts:
            await bench.run([cut])
            if is_lost:
                bench.lose_files()
        assert shown(bench.results) == expected(stamped_log, cuts, bench.step).results
        assert not bench.letters
        results.append(
            sorted(
                (body["carrier"], time_ms - START_MS, body.get("flights"))
                for (time_ms, _), [body] in bench.results.items()
            )
        )
    counted, passed = results
    long_counts = [*(min(second + 1, 11) for second in range(20)), 11, 3, 1, 2]
    assert [count for carrier, _, count in counted if carrier == "long"] == long_counts
    assert [result for result in counted if result[0] not in ("long", "end")] == [
        ("apart", 0, 1),
        ("apart", 10_001, 1),
        ("back", 3_000, 1),
        ("back", 9_000, 2),
        ("exact", 0, 1),
        ("exact", 10_000, 2),
        ("later", 38_000, 1),
        ("later", 41_000, 2),
        ("same", 5_000, 2),
        ("same", 5_000, 2),
    ]
    assert [result[:2] for result in passed if result[0] != "end"] == [
        ("apart", 0),
        ("apart", 10_001),
        ("back", 3_000),
        ("exact", 0),
        ("later", 38_000),
        ("long", 0),
        ("long", 40_001),
        ("same", 5_000),
    ]
    assert bench.counts["repeated"] == bench.counts["folded"] - len(passed) == len(counted) - len(passed)


@pytest.mark.parametrize("is_lost", LOSSES)
async def test_an_event_beyond_the_limit_of_its_key_never_counts_and_says_how_to_raise_it(
    spark: SparkSession, tmp_path: Path, is_lost: bool
) -> None:
    stamped_log = StampedLog(1)
    cuts: list[Mapping[int, int]] = []

    def add(carrier: str, *times_ms: int) -> int:
        entries = [
            stamped_log.event(0, START_MS + at_ms, START_MS + 90_000, flight(carrier)) for at_ms in times_ms
        ]
        stamped_log.heartbeat(0)
        cuts.append(stamped_log.ends())
        return entries[-1].number or 0

    add("A", 0, 1_000)
    beyond = add("A", 9_000)
    add("A", 12_000)
    add("B", 18_000)
    add("A", 15_000)  # all before 13 s has its results, and counts in later ones from 3 s on
    add("B", 40_000)
    bench = StepBench(spark, stamped_log, step_pipe(LIMITED_EACH), tmp_path)
    for cut in cuts:
        await bench.run([cut])
        if is_lost:
            bench.lose_files()
    counts = [
        (time_ms - START_MS, body["flights"])
        for (time_ms, _), [body] in sorted(bench.results.items())
        if body["carrier"] == "A"
    ]
    assert counts == [(0, 1), (1_000, 2), (12_000, 1), (15_000, 2)]
    assert bench.letters == {(beyond, "key-limit"): 1}
    assert shown(bench.results) == expected(stamped_log, cuts, bench.step).results
    (letter,) = bench.letter_fields
    assert letter["hifi_step"] == b"carrier-delays"
    assert letter["hifi_detail"] == (
        b"the step carrier-delays counts at most 2 events of a key (carrier) in 10 s, of each pipe and partition, and"
        b" had them before this one: raise `limit` in the source of the step"
    )


@pytest.mark.parametrize(
    "source",
    [
        {"where": "element_at(array(1, 2), delay) > 0"},
        {"fields": {"flights": "count(*)", "total": "sum(element_at(array(1, 2), delay))"}},
    ],
    ids=["condition", "argument"],
)
async def test_an_event_on_which_an_expression_throws_is_refused_and_the_others_count(
    spark: SparkSession, tmp_path: Path, source: dict[str, Any]
) -> None:
    stamped_log = StampedLog(1)
    _, refused, _ = [stamped_log.event(0, START_MS, START_MS, flight(delay=delay)) for delay in (1, 0, 2)]
    stamped_log.event(0, START_MS + 60_000, START_MS + 60_000, flight(delay=1))
    stamped_log.heartbeat(0)
    bench = StepBench(spark, stamped_log, step_pipe(TUMBLING, **source), tmp_path)
    await bench.run([stamped_log.ends()])
    assert [body["flights"] for [body] in bench.results.values()] == [2]
    assert bench.letters == {(refused.number, "sql-failed"): 1}
    (letter,) = bench.letter_fields
    assert letter["hifi_detail"] == b"an expression of the pipe failed on this event"


async def test_an_event_on_which_an_expression_of_a_join_throws_is_refused_and_the_pair_of_others_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    stamped_log = StampedLog(1, (PIPE, OTHER))
    refused = set()
    for pipe in (PIPE, OTHER):
        stamped_log.event(0, START_MS, START_MS, flight(delay=1), pipe)
        refused.add((stamped_log.event(0, START_MS, START_MS, flight(delay=0), pipe).number, "sql-failed"))
        stamped_log.event(0, START_MS + 60_000, START_MS + 60_000, flight(delay=2), pipe)
    stamped_log.heartbeat(0)
    throwing = "element_at(array(1, 2), delay)"
    join = {**JOIN_SOURCE["join"], "fields": {"price": throwing}}
    window = {"join": join, "fields": {"delay": throwing}}
    bench = StepBench(spark, stamped_log, step_pipe(window), tmp_path)
    await bench.run([stamped_log.ends()])
    assert [(body["delay"], body["price"]) for [body] in bench.results.values()] == [(1, 1)]
    assert bench.letters.keys() == refused


@pytest.mark.parametrize("is_lost", LOSSES)
async def test_a_mean_of_numbers_whose_sum_is_beyond_all_doubles_is_null(
    spark: SparkSession, tmp_path: Path, is_lost: bool
) -> None:
    stamped_log = StampedLog(1)
    cuts = []
    for price in (1.7e308, -1.7e308, 1.0):  # their sums are infinite, not a number, and still not a number
        for _ in range(2):
            stamped_log.event(0, START_MS, START_MS, {**flight(), "price": price})
        cuts.append(stamped_log.ends())
    stamped_log.event(0, START_MS + 60_000, START_MS + 60_000, flight())
    stamped_log.heartbeat(0)
    cuts.append(stamped_log.ends())
    bench = StepBench(spark, stamped_log, step_pipe(TUMBLING), tmp_path)
    for cut in cuts:
        await bench.run([cut])
        if is_lost:
            bench.lose_files()
    assert shown(bench.results) == expected(stamped_log, cuts, bench.step).results
    assert [(body["flights"], body["mean"]) for [body] in bench.results.values()] == [(6, None)]


@pytest.mark.parametrize("window", [FIRST, more(TUMBLING)])
async def test_a_header_without_a_value_is_left_out_of_letters_and_of_events_that_pass_on(
    spark: SparkSession, tmp_path: Path, window: dict[str, Any]
) -> None:
    stamped_log = StampedLog(1)
    entries = [stamped_log.event(0, START_MS, START_MS, flight(carrier)) for carrier in ("A", None)]
    for entry in entries:
        entry.valueless = ("ce_subject", "trace")
    stamped_log.event(0, START_MS + 60_000, START_MS + 60_000, flight())
    stamped_log.heartbeat(0)
    bench = StepBench(spark, stamped_log, step_pipe(window), tmp_path)
    await bench.run([stamped_log.ends()])
    assert len(bench.results) == 1
    assert bench.letters == {(entries[1].number, "no-key"): 1}
    assert not bench.letter_fields[0].keys() & {"ce_subject", "trace"}


async def test_an_event_that_was_accepted_in_the_year_9999_is_refused_and_no_watermark_follows_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    stamped_log = StampedLog(1)
    for second in (0, 60):
        stamped_log.event(0, START_MS + second * 1000, START_MS + second * 1000, flight())
    far_ms = 253_402_300_799_999  # the end of the year 9999, the latest that is an event
    far_event = stamped_log.event(0, far_ms, far_ms, flight())
    far_event.valueless = ("ce_time",)
    cuts = [stamped_log.ends()]
    entry = stamped_log.event(0, START_MS + 61_000, START_MS + 61_000, flight())
    assert entry.stamp_ms == far_ms
    stamped_log.heartbeat(0)
    cuts.append(stamped_log.ends())
    bench = StepBench(spark, stamped_log, step_pipe(TUMBLING), tmp_path)
    await bench.run(cuts)
    assert Progress.decode(bench.kept).highest_stamps == {0: START_MS + 60_000}
    assert bench.letters == {(far_event.number, "future"): 1}
    assert bench.counts["folded"] == 3
    assert [body["flights"] for [body] in bench.results.values()] == [1]


@pytest.mark.parametrize(
    "window", [KEEPING_JOIN, *map(more, [LIMITED_EACH, SESSION, FIRST, EACH, LIMITED_JOIN])]
)
async def test_a_file_that_is_computed_anew_in_parts_is_as_the_lost_one_also_after_a_kill_within(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: dict[str, Any]
) -> None:
    monkeypatch.setattr(step_turn, "_MOST_ROWS", 10)
    stamped_log = disordered(11, 2, 200, joined="join" in window)
    cuts = cuts_of(stamped_log, 11, 3)
    bench = StepBench(spark, stamped_log, step_pipe(window, lateness="20s"), tmp_path)
    await bench.run(cuts[:2])
    bench.lose_files()
    bench.most_records = 20
    bench.kill_at, bench.survived = "within a range", 3
    with pytest.raises(Killed):
        await bench.run(cuts[2:])
    await bench.run(cuts[2:])
    oracle = expected(stamped_log, cuts, bench.step)
    assert shown(bench.results) == oracle.results
    assert bench.letters == oracle.refused


def texts(second: int, *times_ms: int) -> list[str]:
    """Second and milliseconds of times since `START_MS`, which begins a second of a minute."""
    return [f"{(second * 1000 + at_ms) / 1000 % 60:06.3f}" for at_ms in times_ms]


@pytest.mark.parametrize("is_lost", LOSSES)
async def test_the_first_event_of_an_empty_partition_is_late_exactly_if_its_windows_are_closed(
    spark: SparkSession, tmp_path: Path, is_lost: bool
) -> None:
    stamped_log = StampedLog(2)
    stamped_log.heartbeat(1)
    for second in range(60):
        stamped_log.event(0, START_MS + second * 1000, START_MS + second * 1000, flight())
    cuts = [stamped_log.ends()]
    closed_event = stamped_log.event(1, START_MS + 1000, START_MS + 60_000, flight())
    stamped_log.heartbeat(1)
    open_event = stamped_log.event(1, START_MS + 58_000, START_MS + 60_000, flight())
    cuts.append(stamped_log.ends())
    for partition in range(2):
        stamped_log.event(partition, START_MS + 90_000, START_MS + 90_000, flight())
        stamped_log.heartbeat(partition)
    cuts.append(stamped_log.ends())
    bench = StepBench(spark, stamped_log, step_pipe(TUMBLING), tmp_path)
    await bench.run(cuts[:2])
    if is_lost:
        bench.lose_files()
    await bench.run(cuts[2:])
    assert bench.letters == {(closed_event.number, "late"): 1}
    oracle = expected(stamped_log, cuts, bench.step)
    assert shown(bench.results) == oracle.results
    place = (open_event.time_ms // 10_000 * 10_000 + 10_000, "A")
    assert (
        bench.results[place][0]["flights"]
        == sum(second * 1000 + START_MS >= place[0] - 10_000 for second in range(60)) + 1
    )
