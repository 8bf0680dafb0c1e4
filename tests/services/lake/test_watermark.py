"""Snapshots of a table state the pipe's watermark, as observe publishes it; each has what it states."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyiceberg.table import Table
from tests.connectors.iceberg.destination.test_commits import BLUE, file_with, progress
from tests.support.collect.collected_stream import until as until_true
from tests.support.lake.lake_stream import LakeStream
from tests.support.observe.api_requests import until
from tests.support.observe.stream_double import Stream, added
from tests.support.observe_principal import create_principals

from hifi.delivery.published_watermarks import PublishedWatermarks
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.record.headers import DESTINATION
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi.runtime.health import Health
from hifi_iceberg.destination.progress import SETTLED_UNTIL
from hifi_lake.batch.processor import BatchProcessor
from hifi_lake.settings import LakeSettings
from hifi_lake.stream import LakeStream as Tables
from hifi_observe.watermark.statement import microseconds

pytestmark = pytest.mark.timeout(300)


async def test_the_watermark_is_that_of_the_topic(kafka: str, tmp_path: Path) -> None:
    producer = Producer(kafka, "test")
    await producer.start()
    stream = await LakeStream(kafka, tmp_path).create({"id": "int"})
    watermarks = PublishedWatermarks(kafka, "test", stream.topics)
    await watermarks.start()
    try:
        for value, expected in (
            (statement("2026-11-27T12:00:00.000000Z"), "2026-11-27T12:00:00.000000Z"),
            (statement(None), None),
            (statement("2026-11-27T12:00:01.000000Z"), "2026-11-27T12:00:01.000000Z"),
            (None, None),
        ):
            await producer.send_and_wait(stream.topics.watermarks, 0, [Record(b"p/lake", value, [])])
            watermarks.follow()
            await until_true(partial(is_stated, watermarks, expected))
    finally:
        await watermarks.stop()
        await producer.stop()


def statement(settled_until: str | None) -> bytes:
    return orjson.dumps({"settled_until": settled_until, "valid_until": "2026-11-27T12:01:00.000000Z"})


def is_stated(watermarks: PublishedWatermarks, expected: str | None) -> bool:
    return watermarks.settled_until("p", "lake") == expected


async def test_every_event_acknowledged_before_the_time_of_a_snapshot_is_in_it(
    kafka: str, tmp_path: Path
) -> None:
    """The batches are written without Spark: real commits, then receipts, in the order of `BatchProcessor`."""
    stream = await LakeStream(kafka, tmp_path, watermark=True, partition="none").create({"id": "int"})
    topics = stream.topics
    await create_principals(kafka, topics.stream)
    producer = Producer(kafka, "double")
    double_stream = Stream(kafka, topics, producer)
    registry = PipeRegistry(kafka, topics, Health("lake", "i"), ("destinations",))
    watermarks = PublishedWatermarks(kafka, "test", topics)
    for client in (producer, registry, watermarks):
        await client.start()
    settings = LakeSettings(kafka=kafka, stream=topics.stream, instance="i")
    election: Any = None
    tables = Tables(kafka, "i", topics, registry, lambda: BLUE, election, Health("lake", "i"), watermarks)
    spark: Any = None
    processor = BatchProcessor(spark, settings, topics, tables, tmp_path)
    events: list[dict[str, bytes]] = []
    acknowledged_us: list[int] = []
    """When each event had been acknowledged; its index is its id."""
    try:
        async with double_stream.observing() as (_, url), asyncio.timeout(200):
            writer = await asyncio.to_thread(processor._table_writer, ("p", "lake"))
            first_us = now_us()

            async def write(count: int) -> list[int]:
                """Write events to `raw`; returns their ids."""
                events.extend(double_stream.fields(0, now_us() // 60_000_000, "p") for _ in range(count))
                await double_stream.write("raw", 0, events[-count:])
                acknowledged_us.extend([now_us()] * count)
                await until(url, "/api/v1/watermarks/p", is_open)
                return list(range(len(events) - count, len(events)))

            async def commit(ids: list[int]) -> None:
                """Their rows, then their receipts."""
                files = file_with(writer.table, BLUE, range(ids[0], ids[-1] + 1))
                await asyncio.to_thread(writer._commits.append, files, progress(len(events)))
                receipt = added(b"%d" % now_us())["receipts"] | {DESTINATION: b"lake"}
                await double_stream.write("receipts", 0, [events[number] | receipt for number in ids])

            while max(stated_us(stream.table()).values(), default=0) <= first_us:
                await commit(await write(3))
                await until(url, "/api/v1/watermarks/p", partial(is_settled, now_us()))
                uncommitted_ids = await write(1)
                await commit(await write(2))
                await commit(uncommitted_ids)
                await until(url, "/api/v1/watermarks/p", partial(is_settled, now_us()))
        times_us = stated_us(stream.table())
        for snapshot_id, until_us in times_us.items():
            ids = set(stream.table().scan(snapshot_id=snapshot_id).to_arrow()["id"].to_pylist())
            assert {number for number, at_us in enumerate(acknowledged_us) if at_us < until_us} <= ids
        assert max(times_us.values()) > acknowledged_us[0], "no time covers any event, so nothing was tested"
    finally:
        for client in (watermarks, registry, producer):
            await client.stop()


def is_open(body: Any) -> bool:
    return any(row["open"]["in_flight"] for row in body["watermarks"])


def is_settled(until_us: int, body: Any) -> bool:
    return all(microseconds(row["settled_until"]) > until_us for row in body["watermarks"])


def stated_us(table: Table) -> dict[int, int]:
    """Snapshot to the time that it states, microseconds since 1970 UTC."""
    return {
        snapshot.snapshot_id: microseconds(text)
        for snapshot in table.snapshots()
        for name, text in (snapshot.summary.additional_properties if snapshot.summary else {}).items()
        if name.startswith(SETTLED_UNTIL)
    }
