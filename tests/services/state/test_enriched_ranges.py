"""Ranges of `enriched` on Kafka: a small one is folded by a query that is planned once, with the same outcome."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from tests.support.state.kafka_log import written
from tests.support.state.stamped_log import START_MS, StampedLog, disordered
from tests.support.state.step_bench import FLIGHTS, JOIN_SOURCE, KEEPING_SOURCE, OTHERS, step_pipe

from hifi.pipe.model import Pipe
from hifi.pipe.sources.step import StepSource
from hifi.spark.catalyst import Catalyst
from hifi.spark.spark_session import root_cause
from hifi_state.checked_step import checked_declaration
from hifi_state.enriched_ranges import EnrichedRanges
from hifi_state.fold import range_folder
from hifi_state.fold.dead_letters import LetterRecord
from hifi_state.fold.judged_events import FoldRules
from hifi_state.fold.range_folder import FoldedRange, RangeFolder, RangeTooLarge
from hifi_state.settings import StateSettings

PARTITIONS = 3
RECORDS = 900
FETCHED_US = 1_700_000_000_000_000
CUTS = (0, 0.3, 0.35, 1)
WINDOWS = {"tumbling": "10s"}
FIELDS_WITH_DAY = {"fields": {**FLIGHTS.enrich.fields, "day": "date"}}
KINDS: list[Mapping[str, object]] = [JOIN_SOURCE]
MORE_KINDS: list[Mapping[str, object]] = [
    WINDOWS,
    {"size": "30s", "every": "10s"},
    {"session": "2s"},
    {"each": {"trailing": "10s"}},
    {"first": "2s"},
    KEEPING_SOURCE,
]


def ranges_of(
    settings: StateSettings,
    spark: SparkSession,
    kind: Mapping[str, object],
    flights: Pipe = FLIGHTS,
    **source: Any,
) -> tuple[EnrichedRanges, RangeFolder]:
    pipe = step_pipe(kind, **source)
    assert isinstance(pipe.source, StepSource)
    catalyst = Catalyst(spark)
    read = (flights, OTHERS) if pipe.source.join else (flights,)
    declaration = checked_declaration(catalyst, pipe.source, read)
    return EnrichedRanges(settings, spark, pipe.pipe), RangeFolder(catalyst, pipe.pipe, declaration, "1")


def shown(folded: FoldedRange) -> tuple[object, list[str]]:
    return folded.summary, sorted(map(repr, folded.rows(None)))


@pytest.mark.parametrize("kinds", [KINDS, pytest.param(MORE_KINDS, marks=pytest.mark.more)])
async def test_a_small_range_is_folded_as_any_other(
    settings: StateSettings, spark: SparkSession, kinds: list[Mapping[str, object]]
) -> None:
    stamped_log = disordered(3, PARTITIONS, RECORDS, empty=[1], joined=True)
    await written(stamped_log, settings)

    def compare(kind: Mapping[str, object]) -> int:
        """Fold ranges both ways; the number of rows or of dead letters, whichever is less."""
        ranges, folder = ranges_of(settings, spark, kind)
        start = dict.fromkeys(stamped_log.ends(), 0)
        raws: dict[int, int] = {}
        horizon_ms = emitted_ms = None
        row_count = letter_count = 0
        for cut in CUTS[1:]:
            end = {partition: int(cut * end_offset) for partition, end_offset in stamped_log.ends().items()}
            rules = FoldRules(PARTITIONS, raws, horizon_ms, emitted_ms)
            small_range = ranges.fold(folder, start, end, rules)
            kept_range = ranges.fold(folder, start, end, rules, keeps_events=True)
            assert shown(small_range) == shown(kept_range), (kind, cut)
            kept_letters = sorted(
                map(LetterRecord.of_row, kept_range.dead_letters(FETCHED_US).collect()), key=repr
            )
            assert kept_letters == sorted(small_range.few_letters(FETCHED_US) or [], key=repr), (kind, cut)
            letter_count += len(kept_letters)
            kept_range.release()
            row_count += len(small_range.rows(None))
            start, raws, emitted_ms = end, {**raws, **small_range.summary.raws}, horizon_ms
            horizon_ms = START_MS + int(60_000 * cut) // 1000 * 1000
        return min(row_count, letter_count)

    assert all(await asyncio.to_thread(lambda: [compare(kind) for kind in kinds]))


@pytest.mark.more
async def test_a_date_of_a_key_is_the_same_in_both_ways(settings: StateSettings, spark: SparkSession) -> None:
    stamped_log = StampedLog(1)
    days = ("2026-01-05", "0001-01-01", "9999-12-31", "2026-01-05")
    for day in days:
        flight = {"day": day, "carrier": "A", "delay": 1, "price": 1.5, "cancelled": False}
        stamped_log.event(0, START_MS, START_MS, flight)
    await written(stamped_log, settings)
    flights = Pipe.model_validate(FLIGHTS.model_dump(by_alias=True) | {"enrich": FIELDS_WITH_DAY})
    key = {"day": "date", "carrier": "string"}
    ranges, folder = ranges_of(settings, spark, WINDOWS, flights, key=key)
    rules, end = FoldRules(1, {}, None), stamped_log.ends()
    for keeps_events in (False, True):
        folded = await asyncio.to_thread(ranges.fold, folder, {0: 0}, end, rules, keeps_events=keeps_events)
        assert {row.key: row.inputs for row in folded.rows(None)} == {
            f'["{day}","A"]': days.count(day) for day in days
        }
        await asyncio.to_thread(folded.release)


async def test_a_range_whose_records_are_deleted_fails(settings: StateSettings, spark: SparkSession) -> None:
    stamped_log = disordered(4, 1, 50)
    await written(stamped_log, settings)
    ranges, folder = ranges_of(settings, spark, WINDOWS)
    rules, end = FoldRules(1, {}, None), stamped_log.ends()
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.kafka)
    await admin.start()
    try:
        await admin.delete_records({TopicPartition(settings.topics.enriched, 0): RecordsToDelete(10)})
    finally:
        await admin.close()
    with pytest.raises(Py4JJavaError) as raised:
        await asyncio.to_thread(ranges.fold, folder, {0: 0}, end, rules)
    assert "out of range" in root_cause(raised.value)
    assert (await asyncio.to_thread(ranges.fold, folder, {0: 10}, end, rules)).rows(None)


async def test_a_small_range_that_makes_too_many_bytes_is_not_held_in_memory(
    settings: StateSettings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamped_log = StampedLog(1)
    for carrier in (None, None, "A"):
        flight = {"carrier": carrier, "delay": 1, "price": 1.5, "cancelled": False, "text": "x" * 10_000}
        stamped_log.event(0, START_MS, START_MS, flight)
    await written(stamped_log, settings)
    ranges, folder = ranges_of(settings, spark, {"first": "2s"})
    rules, end = FoldRules(1, {}, None), stamped_log.ends()

    def folded() -> FoldedRange:
        return ranges.fold(folder, {0: 0}, end, rules)

    small = await asyncio.to_thread(folded)
    assert small.size_bytes > 10_000
    monkeypatch.setattr(range_folder, "MOST_LETTER_BYTES", 30_000)
    few_letters = await asyncio.to_thread(small.few_letters, FETCHED_US)
    assert few_letters is not None
    assert len(few_letters) == 2
    monkeypatch.setattr(range_folder, "MOST_LETTER_BYTES", 20_000)
    assert await asyncio.to_thread(small.few_letters, FETCHED_US) is None
    monkeypatch.setattr(range_folder, "MOST_BYTES", 10_000)
    with pytest.raises(RangeTooLarge, match=r"^3 records of .* are read in smaller parts$"):
        await asyncio.to_thread(folded)
    ranges.bound.failed()
    assert ranges.bound.records == 1
    smallest_range = await asyncio.to_thread(ranges.fold, folder, {0: 2}, end, rules)
    assert smallest_range.size_bytes > 10_000, "a single record is always read"
