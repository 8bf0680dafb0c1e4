"""Records that Kafka deletes before collect has read them cause a warning, a metric, and an alarm of observe."""

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from tests.support.collect.collected_stream import SOURCE_PARTITIONS, CollectedStream, collected_stream, until
from tests.support.observe_principal import VIEWER
from tests.support.stream_process import free_port, readyz

RECORDS = 300
DELETED = 40
"""Records that are deleted of each partition, after `READ` were read."""
READ = 10


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=VIEWER), timeout=5
    ) as answer:
        return str(answer.read().decode())


async def delete_records(stream: CollectedStream, end_offset: int = READ + DELETED) -> None:
    """Delete the records before an offset of each partition; -1: all."""
    admin = AIOKafkaAdminClient(bootstrap_servers=stream.kafka)
    await admin.start()
    partitions = [TopicPartition(stream.source, number) for number in range(SOURCE_PARTITIONS)]
    await admin.delete_records(dict.fromkeys(partitions, RecordsToDelete(end_offset)))
    await admin.close()


async def transaction(stream: CollectedStream, records: int, *, commits: bool) -> None:
    """Write records to each partition of the source, each with a marker behind them."""
    producer = AIOKafkaProducer(bootstrap_servers=stream.kafka, transactional_id=stream.source)
    await producer.start()
    await producer.begin_transaction()
    for number in range(SOURCE_PARTITIONS):
        for _ in range(records):
            await producer.send(stream.source, b"{}", partition=number)
    await (producer.commit_transaction() if commits else producer.abort_transaction())
    await producer.stop()


async def wait_for_commits(stream: CollectedStream, offset: int) -> None:
    """Wait until collect has committed an offset of every partition of the source."""
    partitions = [TopicPartition(stream.source, number) for number in range(SOURCE_PARTITIONS)]
    admin = AIOKafkaAdminClient(bootstrap_servers=stream.kafka)
    await admin.start()
    async with asyncio.timeout(60):
        while True:
            commits = await admin.list_consumer_group_offsets(stream.topics.group("collect.orders"))
            if {commits[partition].offset for partition in partitions if partition in commits} == {offset}:
                break
            await asyncio.sleep(0.1)
    await admin.close()


async def test_markers_and_aborted_records_that_kafka_deletes_are_no_loss_and_others_are(
    kafka: str, log: Path
) -> None:
    async with collected_stream(kafka, log) as stream:
        await stream.publish(stream.pipe())
        collect, admin = await stream.start("collect")
        await transaction(stream, 2, commits=True)
        await transaction(stream, 5, commits=False)
        await wait_for_commits(stream, 2 + 1 + 5 + 1)
        await delete_records(stream, -1)
        await transaction(stream, 1, commits=True)
        await stream.read(stream.topics.raw, lambda records: len(records) == SOURCE_PARTITIONS * 3)
        assert "hifi_collect_deleted_records_total{" not in get(admin, "/metrics")
        await wait_for_commits(stream, 9 + 2)
        await stream.kill(collect)

        await delete_records(stream, -1)
        await transaction(stream, 4, commits=True)  # offsets 11 to 14; the last one stays
        await delete_records(stream, 14)
        _, admin = await stream.start("collect")
        await stream.read(stream.topics.raw, lambda records: len(records) == SOURCE_PARTITIONS * 4)
        lost_records = float(SOURCE_PARTITIONS * 3)
        assert f'hifi_collect_deleted_records_total{{pipe="orders"}} {lost_records}' in get(admin, "/metrics")
        warning_key = f"source of orders: deleted records of {stream.source}[0]"
        assert "the offsets 11 to 13" in readyz(admin)[1]["warnings"][warning_key]


async def test_deleted_records_are_told_with_their_offsets_and_the_rest_is_read(
    kafka: str, log: Path
) -> None:
    async with collected_stream(kafka, log) as stream:
        await stream.publish(stream.pipe())
        for number in range(SOURCE_PARTITIONS):
            for _ in range(RECORDS // SOURCE_PARTITIONS):
                await stream.producer.send(stream.source, b"{}", partition=number)
        await stream.producer.flush()
        await stream.commit(READ)
        await delete_records(stream)
        port = free_port()
        await stream.start("observe", observe_port=port)
        _, admin = await stream.start("collect")
        remaining = RECORDS - SOURCE_PARTITIONS * (READ + DELETED)
        await stream.read(stream.topics.raw, lambda records: len(records) == remaining)

        warnings = readyz(admin)[1]["warnings"]
        for number in range(SOURCE_PARTITIONS):
            warning_key = f"source of orders: deleted records of {stream.source}[{number}]"
            assert f"the offsets {READ} to {READ + DELETED - 1}" in warnings[warning_key]
        lost_records = float(SOURCE_PARTITIONS * DELETED)
        assert f'hifi_collect_deleted_records_total{{pipe="orders"}} {lost_records}' in get(admin, "/metrics")

        def alarms() -> list[dict[str, Any]]:
            active_alarms: list[dict[str, Any]] = json.loads(get(port, "/api/v1/alarms"))["active"]
            return [alarm for alarm in active_alarms if alarm["kind"] == "source-deleted"]

        await until(lambda: len(alarms()) == SOURCE_PARTITIONS)
        assert {alarm["pipe"] for alarm in alarms()} == {"orders"}
        cause = (
            f"{DELETED} records of {stream.source}[0], offsets {READ} to {READ + DELETED - 1}, were deleted"
        )
        assert any(cause in alarm["cause"] for alarm in alarms())
