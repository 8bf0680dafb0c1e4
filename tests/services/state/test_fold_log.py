"""The progress of a step on a real Kafka: what cannot be read is no new beginning."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from hifi.kafka.admin import create_topics
from hifi.kafka.fenced_writer import FencedWriter
from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import PartitionFollower
from hifi.kafka.topics import Topics
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured
from hifi_state.fold.progress import Progress
from hifi_state.fold_log import FoldLog
from hifi_state.settings import StateSettings

PROGRESS = Progress("declaration", "flights", 7, {0: 12})


@pytest.fixture
async def settings(kafka: str) -> StateSettings:
    settings = StateSettings(kafka=kafka, stream=f"s{uuid.uuid4().hex[:8]}")
    await create_topics(kafka, Topics(settings.stream), partitions=1, replication=1)
    return settings


@contextlib.asynccontextmanager
async def taken_over(settings: StateSettings) -> AsyncIterator[FoldLog]:
    fold_log = FoldLog(settings, "delays")
    try:
        await fold_log.take_over()
        yield fold_log
    finally:
        await fold_log.stop()


async def write(settings: StateSettings, value: bytes | None) -> None:
    producer = Producer(settings.kafka, "test")
    await producer.start()
    try:
        await producer.send_and_wait(settings.topics.folds, 0, [Record(b"delays", value, [])])
    finally:
        await producer.stop()


async def test_the_newest_progress_is_taken_over(settings: StateSettings) -> None:
    async with taken_over(settings) as fold_log:
        assert fold_log.progress is None
        await fold_log.keep(PROGRESS)
    async with taken_over(settings) as fold_log:
        assert fold_log.progress == PROGRESS
    await write(settings, None)
    async with taken_over(settings) as fold_log:
        assert fold_log.progress is None, "somebody has deleted the record, so that the step begins anew"


async def test_a_takeover_waits_for_the_open_transaction_of_another_step(
    settings: StateSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, is_reading, read = settings.topics, asyncio.Event(), PartitionFollower._read

    async def observed_read(*arguments: Any) -> None:
        is_reading.set()
        await read(*arguments)

    monkeypatch.setattr(PartitionFollower, "_read", observed_read)
    other_step = FencedWriter(settings.kafka, topics.step_writer("other"), "test")
    next_instance = FoldLog(settings, "delays")
    try:
        async with taken_over(settings) as fold_log, other_step.transaction() as transaction:
            await fold_log.keep(PROGRESS)
            await transaction.append(topics.folds, Record(b"other", b"{}", []))
            newest_progress = replace(PROGRESS, number=8)
            await fold_log.keep(newest_progress)
            is_reading.clear()
            takeover = asyncio.create_task(next_instance.take_over())
            await asyncio.wait_for(is_reading.wait(), 30)  # the end of what it reads is decided
        await takeover
        assert next_instance.progress == newest_progress
    finally:
        await next_instance.stop()
        await other_step.stop()


@pytest.mark.parametrize(
    "value",
    [
        b"\xff",
        b"[]",
        b"7",
        b"{}",
        orjson.dumps(orjson.loads(PROGRESS.encode()) | {"format": 99}),
        orjson.dumps(orjson.loads(PROGRESS.encode()) | {"offsets": "x"}),
    ],
)
async def test_a_progress_that_cannot_be_read_is_said_and_kept(settings: StateSettings, value: bytes) -> None:
    async with taken_over(settings) as fold_log:
        await fold_log.keep(PROGRESS)
    await write(settings, value)
    with pytest.raises(Misconfigured, match="the progress of the step delays on s"):
        async with taken_over(settings):
            pass
    await write(settings, PROGRESS.encode())
    async with taken_over(settings) as fold_log:
        assert fold_log.progress == PROGRESS
