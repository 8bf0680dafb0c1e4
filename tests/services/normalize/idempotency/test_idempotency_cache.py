"""Offsets are completed only after the fingerprints of their events are written."""

import asyncio
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from hifi.kafka.adaptive_fetcher import LogEnd
from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.producer import Producer
from hifi.record.record import Record
from hifi.record.source_position import SourcePosition
from hifi.runtime.clock import monotonic_s
from hifi.runtime.health import Health
from hifi_normalize.idempotency.fingerprint import Fingerprint, pack, unpack
from hifi_normalize.idempotency.fingerprint_window import Repetition
from hifi_normalize.idempotency.idempotency_cache import (
    WRITE_RECORDS,
    IdempotencyCache,
    PartitionFingerprints,
)


class FirstRecord:
    """The first record of `raw`."""

    offset = 0
    timestamp = 1_000


class Topic:
    """Replaces the producer; acknowledges once `open` is set."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.failures = 0
        self.written_fingerprints: list[Fingerprint] = []

    async def send_and_wait(self, _: str, __: int, records: Sequence[Record]) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("it did not work")
        await self.open.wait()
        for record in records:
            self.written_fingerprints += unpack(cast(bytes, record.value))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


class CacheWithEmptyTopics(IdempotencyCache):
    """Nobody has written fingerprints or source positions."""

    async def _read(self, *_: Any) -> None:
        """There is nothing to read."""


async def open_cache(
    topic: Topic, **overrides: Any
) -> tuple[IdempotencyCache, AssignedPartition, PartitionFingerprints]:
    """A cache with one partition whose first record is read."""
    options = {"window_s": 600, "max_fingerprints": 1000} | overrides
    cache = CacheWithEmptyTopics(
        "nowhere:1", "i", "ids", "positions", cast(Producer, topic), Health("n", "i"), **options
    )
    assigned = AssignedPartition(TopicPartition("raw", 0))
    return cache, assigned, await cache.open(assigned, cast(ConsumerRecord, FirstRecord()))


def event(offset: int, *, key: int | None = None) -> Fingerprint:
    return Fingerprint(offset if key is None else key, 0, offset, 1_000 + offset, offset)


async def test_offsets_wait_until_their_fingerprints_are_written() -> None:
    topic = Topic()
    cache, assigned, partition = await open_cache(topic)
    for offset in range(3):
        assigned.offsets.start(offset)
        assert cache.check(partition, event(offset)) == (Repetition.NEW, offset)
    cache.complete_through(assigned, partition, 2)
    await asyncio.sleep(0)
    assert assigned.offsets.committable is None
    topic.open.set()
    await until(lambda: assigned.offsets.committable == 3)
    assert topic.written_fingerprints == [event(offset) for offset in range(3)]


async def test_offsets_without_fingerprints_are_completed_at_once_but_in_order() -> None:
    topic = Topic()
    cache, assigned, partition = await open_cache(topic)
    for offset in range(4):
        assigned.offsets.start(offset)
    cache.complete_through(assigned, partition, 0)
    assert assigned.offsets.committable == 1
    cache.check(partition, event(1))
    cache.complete_through(assigned, partition, 1)
    cache.complete_through(assigned, partition, 2)
    assert assigned.offsets.committable == 1
    topic.open.set()
    await until(lambda: assigned.offsets.committable == 3)


async def test_a_failed_write_is_retried_and_loses_no_fingerprint() -> None:
    topic = Topic()
    topic.failures = 1
    topic.open.set()
    cache, assigned, partition = await open_cache(topic)
    assigned.offsets.start(0)
    cache.check(partition, event(0))
    cache.complete_through(assigned, partition, 0)
    await until(lambda: assigned.offsets.committable == 1)
    assert topic.written_fingerprints == [event(0)]


async def test_positions_that_cannot_be_written_are_kept_with_a_warning_and_written_once_they_can() -> None:
    topic = Topic()
    topic.open.set()
    cache, assigned, partition = await open_cache(topic)
    assigned.offsets.start(0)
    cache.check(partition, event(0))
    partition.sources.unwritten.add(b"p;of nothing that is known")
    cache.complete_through(assigned, partition, 0)
    await until(lambda: "fingerprints of raw[0]" in cache._health.warnings)
    assert assigned.offsets.committable is None
    partition.sources.unwritten.clear()
    await until(lambda: assigned.offsets.committable == 1)
    await until(lambda: partition.writing is None)
    assert topic.written_fingerprints == [event(0)]
    assert cache._health.warnings == {}


class ValuesOfTopic:
    """Replaces the consumer that reads `ids` and `source-positions`."""

    def __init__(self, *values: bytes | None) -> None:
        self._records = [
            SimpleNamespace(topic="t", partition=0, offset=offset, key=b"p;s", value=value, timestamp=1_000)
            for offset, value in enumerate(values)
        ]

    async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    async def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, len(self._records))

    async def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        return dict.fromkeys(times, self._records[0])

    def assign(self, _: list[TopicPartition]) -> None:
        """It has all records."""

    def seek(self, _: TopicPartition, __: int) -> None:
        """It reads from the first one."""

    async def getmany(self, tp: TopicPartition, **_: Any) -> dict[TopicPartition, list[Any]]:
        return {tp: self._records}

    async def position(self, _: TopicPartition) -> int:
        return len(self._records)


async def test_records_that_cannot_be_read_are_skipped() -> None:
    cache, assigned, partition = await open_cache(Topic())
    assigned.committed = 10
    fingerprints = ValuesOfTopic(None, b"x" * 35, pack([event(0)]), b"x" * 37, pack([event(1)]))
    await cache._read_fingerprints(fingerprints, partition.window, assigned, 1_000)
    assert [cache.check(partition, event(offset))[0] for offset in range(3)] == [
        Repetition.COPY,
        Repetition.COPY,
        Repetition.NEW,
    ]
    positions = ValuesOfTopic(
        None, b"{}", b'{"highest": 7, "through": 3, "runs": [[0, "a", -1]]}', b"not JSON"
    )
    await cache._read_positions(positions, partition.sources, assigned)
    assert partition.sources.is_copy("p", SourcePosition(b"b", 7, b"s"), 4)


async def test_a_fenced_partition_writes_and_completes_nothing_and_is_removed() -> None:
    topic = Topic()
    topic.open.set()
    cache, assigned, partition = await open_cache(topic)
    assigned.offsets.start(0)
    cache.check(partition, event(0))
    cache.complete_through(assigned, partition, 0)
    assigned.revoke(fenced=True)
    await until(lambda: partition.writing is None)
    assert assigned.offsets.committable is None
    assert topic.written_fingerprints == []
    cache.evict(monotonic_s())
    assert cache._partitions == {}


async def test_a_revoked_partition_or_many_records_are_written_at_once() -> None:
    topic = Topic()
    topic.open.set()
    cache, assigned, partition = await open_cache(topic, max_fingerprints=10_000)
    for offset in range(WRITE_RECORDS):
        assigned.offsets.start(offset)
        cache.check(partition, event(offset))
    cache.complete_through(assigned, partition, WRITE_RECORDS - 1)
    assert partition.write_now.is_set()
    await until(lambda: assigned.offsets.committable == WRITE_RECORDS)
    assigned.offsets.start(WRITE_RECORDS)
    cache.check(partition, event(WRITE_RECORDS))
    cache.complete_through(assigned, partition, WRITE_RECORDS)
    assigned.revoke()
    await until(lambda: assigned.offsets.committable == WRITE_RECORDS + 1)


async def test_above_the_limit_the_oldest_fingerprints_are_removed_and_health_warns() -> None:
    topic = Topic()
    cache, _, partition = await open_cache(topic, window_s=8, max_fingerprints=10)
    for offset in range(20):
        cache.check(partition, event(offset)._replace(at_ms=1_000 + 500 * offset))
    partition.clock.note(10_500, monotonic_s())
    cache.evict(monotonic_s())
    assert len(partition.window) <= 10
    assert "HIFI_NORMALIZE_MAX_FINGERPRINTS" in cache._health.warnings["client retries"]
    cache.evict(monotonic_s() + 50)
    assert cache._health.warnings == {}


async def test_while_a_partition_is_behind_repetitions_are_recognized_by_the_time_of_its_records() -> None:
    cache, assigned, partition = await open_cache(Topic(), window_s=600)
    first_event = event(0)._replace(at_ms=1_000)
    assert cache.check(partition, first_event)[0] is Repetition.NEW
    cache.evict(monotonic_s() + 3_600)
    assert (
        cache.check(partition, first_event._replace(at_ms=61_000, offset=1, identity=7))[0]
        is Repetition.REPEATED
    )
    assigned.end = lambda: LogEnd(2, 0.0)
    cache.evict(monotonic_s() + 3_600)
    assert not len(partition.window), "it is read to its end"


async def test_the_wall_clock_of_the_instance_ends_no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, assigned, partition = await open_cache(Topic(), window_s=600)
    assigned.end = lambda: LogEnd(1, 0.0)
    assert cache.check(partition, event(0))[0] is Repetition.NEW
    ahead_ns = time.time_ns() + 3_600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: ahead_ns)
    monkeypatch.setattr(time, "time", lambda: ahead_ns / 1e9)
    sweep = asyncio.create_task(cache.sweep())
    await asyncio.sleep(0)
    sweep.cancel()
    repeated = event(1, key=0)._replace(at_ms=1_000 + 5_000)
    assert cache.check(partition, repeated) == (Repetition.REPEATED, 0)


async def test_events_with_reused_ids_stay_known_until_they_are_complete() -> None:
    topic = Topic()
    topic.open.set()
    cache, assigned, partition = await open_cache(topic)
    for offset in range(3):
        assigned.offsets.start(offset)
        cache.check(partition, event(offset, key=7)._replace(data=offset))
    assert partition.reused_id_offsets == {1, 2}
    cache.complete_through(assigned, partition, 1)
    await until(lambda: assigned.offsets.committable == 2)
    assert partition.reused_id_offsets == {2}
