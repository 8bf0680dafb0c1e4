"""Offsets are finished only when what is to be remembered of them is written."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from aiokafka import ConsumerRecord, TopicPartition

from hifi.event import Record
from hifi.health import Health
from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.producer import Producer
from hifi_normalize.idempotency.fingerprint import Fingerprint, unpack
from hifi_normalize.idempotency.fingerprint_window import Repetition
from hifi_normalize.idempotency.idempotency_cache import (
    WRITE_RECORDS,
    IdempotencyCache,
    PartitionFingerprints,
)


class Topic:
    """In place of the producer: acknowledges when it is let."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.failures = 0
        self.written: list[Fingerprint] = []

    async def send_and_wait(self, _: str, __: int, records: Sequence[Record]) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("it did not work")
        await self.open.wait()
        for record in records:
            self.written += unpack(cast(bytes, record.value))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def begun(
    topic: Topic, **more: Any
) -> tuple[IdempotencyCache, AssignedPartition, PartitionFingerprints]:
    """A memory with one partition that was never committed, so nothing is read."""
    options = {"window_s": 600, "max_fingerprints": 1000} | more
    cache = IdempotencyCache("nowhere:1", "ids", cast(Producer, topic), Health("n", "i"), **options)
    work = AssignedPartition(TopicPartition("raw", 0))
    return cache, work, await cache.open(work, cast(ConsumerRecord, None))


def event(offset: int, *, key: int | None = None) -> Fingerprint:
    return Fingerprint(offset if key is None else key, 0, offset, 1_000 + offset, offset)


async def test_offsets_wait_for_the_record_of_their_ids() -> None:
    topic = Topic()
    cache, work, partition = await begun(topic)
    for offset in range(3):
        work.offsets.start(offset)
        assert cache.check(partition, event(offset)) == (Repetition.NEW, offset)
    cache.complete_through(work, partition, 2)
    await asyncio.sleep(0)
    assert work.offsets.committable is None
    topic.open.set()
    await until(lambda: work.offsets.committable == 3)
    assert topic.written == [event(offset) for offset in range(3)]


async def test_what_there_is_nothing_to_remember_of_is_finished_at_once_but_never_out_of_turn() -> None:
    topic = Topic()
    cache, work, partition = await begun(topic)
    for offset in range(4):
        work.offsets.start(offset)
    cache.complete_through(work, partition, 0)
    assert work.offsets.committable == 1
    cache.check(partition, event(1))
    cache.complete_through(work, partition, 1)
    cache.complete_through(work, partition, 2)
    assert work.offsets.committable == 1
    topic.open.set()
    await until(lambda: work.offsets.committable == 3)


async def test_a_failed_write_is_repeated_and_loses_no_id() -> None:
    topic = Topic()
    topic.failures = 1
    topic.open.set()
    cache, work, partition = await begun(topic)
    work.offsets.start(0)
    cache.check(partition, event(0))
    cache.complete_through(work, partition, 0)
    await until(lambda: work.offsets.committable == 1)
    assert topic.written == [event(0)]


async def test_a_partition_that_is_anothers_finishes_and_writes_nothing_more_and_is_forgotten() -> None:
    topic = Topic()
    topic.open.set()
    cache, work, partition = await begun(topic)
    work.offsets.start(0)
    cache.check(partition, event(0))
    cache.complete_through(work, partition, 0)
    work.revoke(fenced=True)
    await until(lambda: partition.writing is None)
    assert work.offsets.committable is None
    assert topic.written == []
    cache.evict(2_000)
    assert cache._partitions == {}


async def test_handing_over_and_many_records_hurry_the_writing() -> None:
    topic = Topic()
    topic.open.set()
    cache, work, partition = await begun(topic, max_fingerprints=10_000)
    for offset in range(WRITE_RECORDS):
        work.offsets.start(offset)
        cache.check(partition, event(offset))
    cache.complete_through(work, partition, WRITE_RECORDS - 1)
    assert partition.write_now.is_set()
    await until(lambda: work.offsets.committable == WRITE_RECORDS)
    work.offsets.start(WRITE_RECORDS)
    cache.check(partition, event(WRITE_RECORDS))
    cache.complete_through(work, partition, WRITE_RECORDS)
    work.revoke()
    await until(lambda: work.offsets.committable == WRITE_RECORDS + 1)


async def test_the_bound_is_kept_by_forgetting_the_oldest_and_that_is_told() -> None:
    topic = Topic()
    cache, _, partition = await begun(topic, window_s=8, max_fingerprints=10)
    for offset in range(20):
        cache.check(partition, event(offset)._replace(at_ms=1_000 + 500 * offset))
    cache.evict(10_500)
    assert len(partition.window) <= 10
    assert "HIFI_NORMALIZE_MAX_FINGERPRINTS" in cache._health.warnings["client retries"]
    cache.evict(60_000)
    assert cache._health.warnings == {}
