"""The comparison of two declarations of a step is that of the oracle, for any part of the log."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.services.state.test_account import record_of
from tests.services.state.test_fold import expected
from tests.support.state.stamped_log import OTHER, StampedLog, disordered
from tests.support.state.step_bench import FIELDS, FLIGHTS, JOIN_SOURCE, KEEPING_SOURCE, step_pipe

from hifi.pipe.sources.step import StepSource
from hifi.spark.catalyst import Catalyst
from hifi_state.checked_step import checked_declaration
from hifi_state.comparison import StepComparison, StepDifferences
from hifi_state.fold.progress import Progress

WINDOWS: list[dict[str, Any]] = [
    {"tumbling": "10s"},
    {"size": "20s", "every": "10s"},
    {"size": "10s", "every": "5s"},
    {"session": "2s"},
    {"session": "3s"},
    {"each": {"trailing": "10s"}},
    {"each": {"trailing": "5s"}, "limit": 2},
    {"first": "2s"},
    {"first": "5s", "limit": 1},
]
JOINS: list[dict[str, Any]] = [
    *(JOIN_SOURCE, KEEPING_SOURCE, {**KEEPING_SOURCE, "limit": 1}),
    *({**source, "join": source["join"] | {"within": "4s"}} for source in (JOIN_SOURCE, KEEPING_SOURCE)),
]
RENAMED = {**FIELDS, "worst": FIELDS["total"], "total": FIELDS["worst"]}
"""The oracle has the values of the one under the name of the other."""


class Declared(NamedTuple):
    """A declaration, and how the oracle computes it."""

    kind: dict[str, Any]
    lateness: str
    with_cancelled: bool
    is_renamed: bool

    @property
    def step(self) -> StepSource:
        source: dict[str, Any] = {"where": "true"} if self.with_cancelled else {}
        if self.is_renamed and not self.kind.keys() & {"first", "join"}:
            source["fields"] = RENAMED
        step = step_pipe(self.kind, self.lateness, **source).source
        assert isinstance(step, StepSource)
        return step


def declared(kinds: Sequence[dict[str, Any]]) -> st.SearchStrategy[Declared]:
    return st.builds(
        Declared, st.sampled_from(kinds), st.sampled_from(["1s", "5s"]), st.booleans(), st.booleans()
    )


PAIRS = st.one_of([st.tuples(declared(kinds), declared(kinds)) for kinds in (WINDOWS, WINDOWS, JOINS)])
SETTINGS = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def compared(
    spark: SparkSession,
    stamped_log: StampedLog,
    pair: tuple[Declared, Declared],
    start: Mapping[int, int],
    part: int,
) -> StepDifferences:
    """The comparison of the records from some offsets on, which come in parts, those of the partitions in turn."""
    catalyst = Catalyst(spark)
    kept, changed = (
        checked_declaration(catalyst, each.step, [FLIGHTS] * len(each.step.inputs)) for each in pair
    )
    joined = None if pair[0].step.join is None else OTHER
    progress = Progress(kept.text, "flights", 0, dict.fromkeys(stamped_log.ends(), 0), joined=joined)
    records = [
        record_of(partition, offset, entry)
        for partition, entries in enumerate(stamped_log.partitions)
        for offset, entry in enumerate(entries)
        if offset >= start[partition]
    ]
    records.sort(key=lambda record: record.offset - start[record.partition])
    with TemporaryDirectory() as folder:
        comparison = StepComparison(catalyst, "carrier-delays", progress, changed, start, Path(folder))
        with closing(comparison):
            for first in range(0, len(records), part):
                comparison.add(records[first : first + part])
            return comparison.compared()


def oracle_results(
    stamped_log: StampedLog, each: Declared, other: Declared, differences: StepDifferences
) -> tuple[dict[Any, dict[str, Any]], Counter[str], int]:
    """What tells a result from others to its fields; the refused events by reason; and until when results are known."""
    step, until_ms = each.step, differences.until_ms or 0
    if each.with_cancelled:
        whole_log = stamped_log
        stamped_log = StampedLog(len(whole_log.partitions))
        stamped_log.partitions = [
            [replace(entry, data={**entry.data, "cancelled": False}) for entry in entries]
            for entries in whole_log.partitions
        ]
    oracle = expected(stamped_log, [stamped_log.ends()], step)
    assert oracle.horizon_ms is not None
    results: dict[Any, dict[str, Any]] = {}
    for (time_ms, name), body in oracle.results.items():
        result_id: Any = next(iter(each.kind)) if step.window is None else bool(step.gap_ms), name
        first_ms, last_ms = time_ms + 1, time_ms + 1
        if step.window is not None:
            result_id = *result_id, body["start_ms"], time_ms
            last_ms = time_ms + bool(step.gap_ms)
            first_ms = body["start_ms"] + 1 if step.gap_ms else time_ms
        elif step.join is not None and body["with"] is None:
            first_ms = time_ms - step.length_ms + 1
            last_ms = first_ms + max(step.length_ms, other.step.length_ms)
        if first_ms > differences.from_ms and last_ms <= until_ms:
            names = dict(zip(FIELDS, FIELDS, strict=True)) if step.join is None else {}
            if each.is_renamed:
                names |= {"worst": "total", "total": "worst"}
            if step.join is not None:
                names = {name: name for name in ("delay", "late", "price")}
            results[result_id] = {} if step.first else {name: body[names[name]] for name in names}
    reasons: Counter[str] = Counter()
    for (_, reason), number in oracle.refused.items():
        reasons[reason] += number
    return results, reasons, oracle.horizon_ms


def check(
    spark: SparkSession, seed: int, pair: tuple[Declared, Declared], share: float, part: int
) -> StepDifferences:
    """Compare as the oracle does, from a share of each partition on."""
    chance = random.Random(seed)
    stamped_log = disordered(seed, 3, 300, joined=pair[0].step.join is not None)
    start = {partition: round(end * share * chance.random()) for partition, end in stamped_log.ends().items()}
    differences = compared(spark, stamped_log, pair, start, part)
    (kept, kept_reasons, kept_until_ms), (changed, changed_reasons, changed_until_ms) = (
        oracle_results(stamped_log, each, other, differences) for each, other in (pair, pair[::-1])
    )
    assert differences.until_ms == min(kept_until_ms, changed_until_ms)
    common = kept.keys() & changed.keys()
    fields = Counter(
        name for place in common for name, value in kept[place].items() if value != changed[place][name]
    )
    assert differences.fields == fields
    assert differences.equal == sum(kept[place] == changed[place] for place in common)
    assert differences.differing == len(common) - differences.equal
    assert differences.only_kept.total() == len(kept) - len(common)
    assert differences.only_declared.total() == len(changed) - len(common)
    if not share:
        assert differences.from_ms == 0
        for side, reasons in enumerate((kept_reasons, changed_reasons)):
            verdicts: Counter[str] = Counter()
            for pair_of_verdicts, number in differences.events.items():
                verdicts[pair_of_verdicts[side]] += number
            assert {reason: verdicts[reason] for reason in reasons} == reasons
            assert verdicts.keys() <= reasons.keys() | {"folded", "copy", "left-out"}
    return differences


_CASES = {
    "seed": st.integers(0, 2**32),
    "pair": PAIRS,
    "share": st.sampled_from([0, 0.4]),
    "part": st.sampled_from([200, 10_000]),
}


@settings(SETTINGS, max_examples=2)
@given(**_CASES)
def test_two_declarations_compare_as_the_oracle_does_over_any_part_of_the_log(
    spark: SparkSession, seed: int, pair: tuple[Declared, Declared], share: float, part: int
) -> None:
    check(spark, seed, pair, share, part)


@pytest.mark.more
@settings(SETTINGS, max_examples=25)
@given(**_CASES)
def test_many_declarations_compare_as_the_oracle_does(
    spark: SparkSession, seed: int, pair: tuple[Declared, Declared], share: float, part: int
) -> None:
    check(spark, seed, pair, share, part)
