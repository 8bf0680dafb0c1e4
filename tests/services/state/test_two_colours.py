"""A step in two colours on real Spark: results are those of each log, and marked where the other colour has events."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.state.stamped_log import START_MS, StampedLog
from tests.support.state.step_bench import Killed, StepBench, shown, step_pipe
from tests.support.state.window_oracle import outcome

from hifi.delivery.colours import NAMES, other
from hifi_state.fold.colour_times import ColourTimes
from hifi_state.fold.progress import Progress

LASTS_S, PARTITIONS, LATENESS_MS = 110, 2, 5_000
GREEN_S = range(47, 73)
"""Seconds in which green accepts the events."""
SIZE_MS = 10_000


@dataclass
class ShiftedLogs:
    """The logs of both colours over a shift and a shift back."""

    logs: dict[str, StampedLog] = field(default_factory=dict)
    cuts: list[dict[str, Mapping[int, int]]] = field(default_factory=list)
    """What has been enriched every few seconds."""

    @classmethod
    def write(cls) -> "ShiftedLogs":
        shifted, chance = cls(), random.Random(3)
        shifted.logs = {name: StampedLog(PARTITIONS, by_clock=True) for name in NAMES}
        for second in range(LASTS_S + 30):
            now_ms = START_MS + second * 1000
            stamped_log = shifted.logs["green" if second in GREEN_S else "blue"]
            for _ in range(3 if second < LASTS_S else 0):
                data = {
                    "carrier": chance.choice("ABC"),
                    "delay": chance.randrange(60),
                    "price": 1.5,
                    "cancelled": chance.random() < 0.1,
                }
                time_ms = now_ms - chance.choice([0, 700, 4_000, 20_000])
                stamped_log.event(chance.randrange(PARTITIONS), time_ms, now_ms, data)
            for each in shifted.logs.values():
                each.clock(now_ms)
            if second % 9 == 0 or second == LASTS_S + 29:
                shifted.cuts.append({name: each.ends() for name, each in shifted.logs.items()})
        return shifted


async def fold(benches: Mapping[str, StepBench], cut: Mapping[str, Mapping[int, int]]) -> None:
    """Each colour folds what is there, and states it."""
    for name, bench in benches.items():
        await bench.run([cut[name]])


async def kill(benches: Mapping[str, StepBench], cut: Mapping[str, Mapping[int, int]], point: str) -> None:
    """Both colours die at a point, and their disks are lost."""
    for name, bench in benches.items():
        bench.kill_at = point
        with pytest.raises(Killed):
            await bench.run([cut[name]])
        bench.lose_files()


@pytest.mark.parametrize(
    ("kind", "kill_at"),
    [
        pytest.param({"tumbling": "10s"}, "", id="windows"),
        pytest.param({"tumbling": "10s"}, "before folds", id="killed", marks=pytest.mark.more),
        pytest.param({"each": {"trailing": "10s"}}, "after folds", id="each", marks=pytest.mark.more),
    ],
)
async def test_results_are_those_of_each_log_and_marked_where_the_other_has_events(
    spark: SparkSession, tmp_path: Path, kind: dict[str, Any], kill_at: str
) -> None:
    shifted, benches = ShiftedLogs.write(), dict[str, StepBench]()
    for name, stamped_log in shifted.logs.items():
        (tmp_path / name).mkdir()
        bench = benches[name] = StepBench(spark, stamped_log, step_pipe(kind), tmp_path / name)
        bench.kept = replace(Progress.decode(bench.kept), own_times=ColourTimes(START_MS - 20_000)).encode()
    for name, bench in benches.items():
        bench.other = benches[other(name)]
    for cut in shifted.cuts:
        if kill_at and cut == shifted.cuts[-6]:
            await kill(benches, cut, kill_at)
        await fold(benches, cut)
    await fold(benches, shifted.cuts[-1])  # with what the other one has stated last

    trailing_ms = SIZE_MS if "each" in kind else None
    for bench in benches.values():
        oracle = outcome(
            bench.log, [bench.log.ends()], SIZE_MS, SIZE_MS, LATENESS_MS, trailing_ms=trailing_ms
        )
        assert shown(bench.results) == oracle.results
        assert Progress.decode(bench.kept).account.missing == (0, 0)
    for name, bench in benches.items():
        ends_ms = {end_ms for end_ms, _ in benches[other(name)].results}
        marks = set()
        for (end_ms, _), [body] in bench.results.items():
            is_shared = (
                end_ms in ends_ms
                if trailing_ms is None
                else any(end_ms - trailing_ms <= other_ms <= end_ms for other_ms in ends_ms)
            )
            assert not is_shared or body["partial"], body
            is_far = end_ms <= START_MS + 40_000 or end_ms > START_MS + 90_000
            assert not (is_far and "partial" in body), body
            marks.add("partial" in body)
        assert marks == {True, False}
