"""The progress of a step on a real Kafka: what cannot be read is no new beginning."""

import contextlib
import uuid
from collections.abc import AsyncIterator

import orjson
import pytest

from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer
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
