"""Copies on `enriched`, and a topic `raw` that is created again, on real Spark: each event counts once."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.services.state.test_account import record_of
from tests.services.state.test_fold import FIRST, LOSSES, TUMBLING, expected, flight, more
from tests.support.state.stamped_log import START_MS, Entry, StampedLog
from tests.support.state.step_bench import StepBench, shown, step_pipe

from hifi.record.step_account import COPY, FOLDED, StepAccount
from hifi.spark.catalyst import Catalyst
from hifi_state.comparison import StepComparison
from hifi_state.explanation import READ_BEFORE, StepExplainer
from hifi_state.fold.progress import Progress, Restart

APART_MS = 3_000
"""Longer than `FIRST`."""


def append(stamped_log: StampedLog, count: int, begin: int) -> list[Entry]:
    """Append events that follow each other; `begin`: the number of those before."""
    times_ms = [START_MS + number * APART_MS for number in range(begin, begin + count)]
    return [stamped_log.event(0, time_ms, time_ms, flight()) for time_ms in times_ms]


@pytest.mark.parametrize("is_lost", LOSSES)
@pytest.mark.parametrize("window", [TUMBLING, FIRST])
async def test_a_range_that_ends_within_copies_makes_no_later_copy_count(
    spark: SparkSession, tmp_path: Path, window: dict[str, Any], is_lost: bool
) -> None:
    stamped_log = StampedLog(1)
    for entry in append(stamped_log, 30, 0)[10:]:
        stamped_log.again(0, entry)
    append(stamped_log, 10, 30)
    stamped_log.heartbeat(0)
    bench = StepBench(spark, stamped_log, step_pipe(window, lateness="1m"), tmp_path)
    bench.most_records = 10
    cuts = [{0: 30}, {0: 40}, {0: 50}, stamped_log.ends()]
    for cut in cuts:
        await bench.run([cut])
        if is_lost:
            bench.lose_files()
    assert shown(bench.results) == expected(stamped_log, cuts, bench.step).results
    assert (bench.counts[FOLDED], bench.counts[COPY]) == (40, 20)
    assert not Progress.decode(bench.kept).restarts


@pytest.mark.parametrize("is_lost", LOSSES)
@pytest.mark.parametrize(
    ("window", "offsets"),
    [
        (TUMBLING, [25, 50]),
        (FIRST, [30, 35]),
        more(FIRST, [25, 50]),
        more(TUMBLING, [20]),
        more(TUMBLING, []),
    ],
)
async def test_events_count_also_after_raw_alone_was_created_again(
    spark: SparkSession, tmp_path: Path, window: dict[str, Any], offsets: list[int], is_lost: bool
) -> None:
    stamped_log = StampedLog(1)
    append(stamped_log, 30, 0)
    stamped_log.create_raw_again()
    for entry in append(stamped_log, 40, 30)[-5:]:
        stamped_log.again(0, entry)
    append(stamped_log, 10, 70)
    stamped_log.heartbeat(0)
    bench = StepBench(spark, stamped_log, step_pipe(window, lateness="2m"), tmp_path)
    cuts = [*({0: offset} for offset in offsets), stamped_log.ends()]
    for cut in cuts:
        await bench.run([cut])
        if is_lost:
            bench.lose_files()
            bench.most_records = 20
    assert shown(bench.results) == expected(stamped_log, cuts, bench.step).results
    assert (bench.counts[FOLDED], bench.counts[COPY]) == (80, 5)
    progress = Progress.decode(bench.kept)
    if offsets:
        assert progress.restarts == (Restart(0, 30),)
    else:
        assert not progress.restarts, "all of it was one range, in which accepted times tell the topics apart"
    if offsets:
        records = [record_of(0, offset, entry) for offset, entry in enumerate(stamped_log.partitions[0])]
        explainer = StepExplainer(Catalyst(spark), bench.pipe, progress)
        events = explainer.explain([], records)
        assert [event.offset for event in events if event.verdict == COPY] == list(range(70, 75))
        assert explainer.explain(records[:40], records[40:]) == events[40:]
        (folder := tmp_path / "compared").mkdir()
        declaration = bench.range_folder.declaration
        comparison = StepComparison(Catalyst(spark), bench.pipe, progress, declaration, {0: 0}, folder)
        with closing(comparison):
            for part in (records[:40], records[40:]):
                comparison.add(part)
            assert comparison.compared().events == {(FOLDED, FOLDED): 80, (COPY, COPY): 5}


async def test_a_copy_of_an_event_before_the_step_began_is_no_sign_that_raw_was_created_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    stamped_log = StampedLog(1)
    *_, newest = append(stamped_log, 20, 0)
    bench = StepBench(spark, stamped_log, step_pipe(TUMBLING, lateness="1m"), tmp_path)
    bench.now_ms = newest.accepted_ms
    begin = stamped_log.ends()
    progress = replace(Progress.decode(bench.kept), offsets=begin, account=StepAccount(begin))
    bench.kept = bench.begun(progress).encode()
    stamped_log.event(0, newest.time_ms, newest.accepted_ms - 2_000, flight())
    cuts = [stamped_log.ends()]
    stamped_log.again(0, newest)
    append(stamped_log, 10, 21)
    cuts.append(stamped_log.ends())
    await bench.run(cuts)
    assert (bench.counts[FOLDED], bench.counts[COPY]) == (11, 1)
    assert not Progress.decode(bench.kept).restarts


async def test_an_event_that_another_declaration_has_read_is_not_said_to_be_a_dead_letter(
    spark: SparkSession, tmp_path: Path
) -> None:
    stamped_log = StampedLog(1)

    def add(*seconds: int) -> None:
        for second in seconds:
            stamped_log.event(0, START_MS + second * 1000, START_MS + 300_000, flight())

    add(*range(101), 70)
    offset = stamped_log.ends()[0] - 1
    cuts = [stamped_log.ends()]
    bench = StepBench(spark, stamped_log, step_pipe(TUMBLING, lateness="1m"), tmp_path)
    await bench.run(cuts)
    bench.declare(step_pipe(TUMBLING, lateness="10s"))
    add(*range(101, 250), 200)
    cuts.append(stamped_log.ends())
    await bench.run(cuts[1:])
    add(250, 201)
    cuts.append(stamped_log.ends())
    await bench.run(cuts[2:])
    late_offset = stamped_log.ends()[0] - 1
    entries = stamped_log.partitions[0]
    assert bench.letters.keys() >= {(entries[late_offset].number, "late")}
    assert (entries[offset].number, "late") not in bench.letters
    explainer = StepExplainer(Catalyst(spark), bench.pipe, Progress.decode(bench.kept))
    records = [record_of(0, number, entries[number]) for number in (offset, late_offset)]
    assert [event.verdict for event in explainer.explain([], records)] == [READ_BEFORE, "late"]
