"""A ledger goes on from what its last owner published, not from what an earlier one wrote after it."""

import asyncio
from collections import Counter
from typing import Any, NamedTuple

import orjson
import pytest
from aiokafka import TopicPartition

from hifi.runtime.trusted_clock import ClockReading
from hifi_observe.kafka import ledger_recovery
from hifi_observe.kafka.ledger_recovery import PublishedLedger
from hifi_observe.ledger.closing import ClosingRules, MinuteResult
from hifi_observe.ledger.id_set import IdSet
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.merged_minute import dump
from hifi_observe.minutes.terms import with_term

MINUTE = 27_000_000
TOPIC = "s.minutes"


class MinutesRecord(NamedTuple):
    """A record of the topic `minutes`."""

    key: bytes
    value: bytes
    partition: int = 0
    offset: int = 0
    topic: str = TOPIC


def share(term: int, unresolved_count: int, version: int = 1) -> MinutesRecord:
    pipe_minute = PipeMinute("flights", MINUTE)
    pipe_minute.version = version - 1  # it counts its closings
    ids = IdSet()
    ids.add("a" * 16, list(range(unresolved_count)))
    pipe_minute.close({}, ids, {"raw": 10})
    value = dump(MinuteResult(pipe_minute, Counter(), []), 0, 5, term=term)
    return MinutesRecord(record_keys.part("flights", MINUTE, 0), orjson.dumps(value))


def marker(term: int, restart: int, minute: int = MINUTE, partition: int = 0) -> MinutesRecord:
    body = {"minute": minute, "through": {}, "restart": {"raw": restart}}
    return MinutesRecord(record_keys.closed(0), orjson.dumps(with_term(term, body)), partition)


def published(*records: MinutesRecord) -> PublishedLedger:
    published_ledger = PublishedLedger(TOPIC, 0)
    for record in records:
        published_ledger.take(record)
    return published_ledger


def unresolved(published_ledger: PublishedLedger) -> int:
    ledger = published_ledger.ledger(ClosingRules(), 1)
    return len(ledger.pipe_minutes["flights", MINUTE].unresolved)


def test_what_an_earlier_owner_writes_after_its_successor_does_not_count() -> None:
    published_ledger = published(share(7, 2), share(8, 0), marker(8, 20), share(7, 1), marker(7, 10))
    assert unresolved(published_ledger) == 0
    assert published_ledger.ledger(ClosingRules(), 1).positions == {"raw": 20}


def test_a_share_that_was_written_again_does_not_undo_its_amendment() -> None:
    assert unresolved(published(share(8, 2, version=9), share(8, 0, version=10), share(8, 2, version=9))) == 0


def test_records_of_a_release_without_terms_count_as_they_come() -> None:
    published_ledger = published(share(8, 2), marker(8, 10), share(0, 1), marker(0, 20))
    assert unresolved(published_ledger) == 1
    assert published_ledger.ledger(ClosingRules(), 1).positions == {"raw": 20}


def test_the_term_of_a_new_owner_is_above_all_others() -> None:
    assert PublishedLedger(TOPIC, 0).ledger(ClosingRules(), 4).term == 4
    assert PublishedLedger(TOPIC, 0).ledger(ClosingRules(), -1).term == 1
    assert published(share(12, 0), marker(11, 5)).ledger(ClosingRules(), 1).term == 13, (
        "the group began again"
    )
    merged_minute = MinutesRecord(record_keys.minute("flights", MINUTE), b'{"term":14,"in":1}')
    assert published(share(12, 0), merged_minute).ledger(ClosingRules(), 1).term == 15
    assert PublishedLedger(TOPIC, 0).ledger(ClosingRules(), 4, known_term=30).term == 34, (
        "the topic was emptied"
    )


class MinutesConsumer:
    """A consumer of two partitions of `minutes`, the second of which ends too early in the first answers."""

    def __init__(self, records: list[list[MinutesRecord]], short_answers: int) -> None:
        self._records = records
        self._short_answers = short_answers
        self._positions: dict[TopicPartition, int] = {}

    async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    async def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        self._short_answers -= 1
        missing = 2 if self._short_answers >= 0 else 0
        return {tp: len(self._records[tp.partition]) - missing * tp.partition for tp in tps}

    def assign(self, tps: list[TopicPartition]) -> None:
        self._positions = dict.fromkeys(tps, 0)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._positions[tp] = offset

    async def position(self, tp: TopicPartition) -> int:
        return self._positions[tp]

    async def getmany(self, *tps: TopicPartition, **_: Any) -> dict[TopicPartition, list[MinutesRecord]]:
        fetched = {}
        for tp in tps:
            first_offset = self._positions[tp]
            self._positions[tp] = len(self._records[tp.partition])
            fetched[tp] = [
                record._replace(partition=tp.partition, offset=first_offset + number)
                for number, record in enumerate(self._records[tp.partition][first_offset:])
            ]
        return fetched


class Clock:
    """A monotonic clock that moves while someone sleeps, and with the first request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first_request_s: float = 0.0) -> None:
        self.now_s = 0.0
        self._steps_s = [0.0, first_request_s]
        monkeypatch.setattr(ledger_recovery, "monotonic_s", lambda: self.now_s)
        monkeypatch.setattr(ledger_recovery, "read_clocks", self._read)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    def _read(self) -> ClockReading:
        self.now_s += self._steps_s.pop(0) if self._steps_s else 0
        return ClockReading(round(self.now_s * 1_000_000), 0)

    async def _sleep(self, seconds: float) -> None:
        self.now_s += seconds


async def read(records: list[list[MinutesRecord]], short_answers: int) -> PublishedLedger:
    return await read_from(MinutesConsumer(records, short_answers))


async def read_from(consumer: MinutesConsumer) -> PublishedLedger:
    published_ledger = PublishedLedger(TOPIC, 0)
    tps = [TopicPartition(TOPIC, number) for number in range(2)]
    await ledger_recovery._read_settled(consumer, tps, published_ledger)
    return published_ledger


async def test_a_partition_whose_marker_is_older_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    markers = [marker(1, 10), marker(1, 20, MINUTE + 1)]
    published_ledger = await read([markers, [markers[0], share(1, 2), markers[1]]], short_answers=3)
    assert unresolved(published_ledger) == 2
    assert clock.now_s < 10


async def test_the_wait_begins_once_a_long_topic_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    class SlowConsumer(MinutesConsumer):
        async def getmany(
            self, *tps: TopicPartition, **options: Any
        ) -> dict[TopicPartition, list[MinutesRecord]]:
            clock.now_s += 30
            return await super().getmany(*tps, **options)

    markers = [marker(1, 10), marker(1, 20, MINUTE + 1)]
    records = [markers, [markers[0], share(1, 2), markers[1]]]
    assert unresolved(await read_from(SlowConsumer(records, short_answers=3))) == 2


async def test_markers_that_an_owner_did_not_write_everywhere_are_waited_for_only_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    published_ledger = await read(
        [[marker(1, 10), marker(1, 20, MINUTE + 1)], [marker(1, 10)]], short_answers=0
    )
    assert published_ledger.ledger(ClosingRules(), 1).closed_minute == MINUTE + 1
    assert clock.now_s == 10


async def test_ends_that_a_broker_told_late_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, first_request_s=5)
    records = [[marker(1, 10)], [marker(1, 10), share(1, 2), marker(1, 10)]]
    published_ledger = await read(records, short_answers=1)
    assert clock.now_s >= 10
    assert unresolved(published_ledger) == 2
