"""What Kafka deletes before collect has read it is told: by a warning, a metric, and an alarm of observe."""

import json
import urllib.request
from pathlib import Path
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from collected_stream import SOURCE_PARTITIONS, CollectedStream, collected_stream, until
from tests.stream_process import free_port, readyz

from hifi_collect.topic.deleted_records import deleted

RECORDS = 300
DELETED = 40
"""Records that are deleted of each partition, after `READ` were read."""
READ = 10


def test_only_offsets_below_the_start_of_the_log_were_deleted() -> None:
    assert deleted(100, 150, 0) == range(0)  # compaction or a transaction
    assert deleted(100, 150, 150) == range(100, 150)
    assert deleted(100, 150, 120) == range(100, 120)
    assert deleted(None, 150, 150) == range(0)  # read for the first time


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return str(answer.read().decode())


async def delete_records(stream: CollectedStream) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=stream.kafka)
    await admin.start()
    places = [TopicPartition(stream.source, number) for number in range(SOURCE_PARTITIONS)]
    await admin.delete_records(dict.fromkeys(places, RecordsToDelete(READ + DELETED)))
    await admin.close()


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
        left = RECORDS - SOURCE_PARTITIONS * (READ + DELETED)
        await stream.read(stream.topics.raw, lambda found: len(found) == left)

        warnings = readyz(admin)[1]["warnings"]
        for number in range(SOURCE_PARTITIONS):
            where = f"source of orders: deleted records of {stream.source}[{number}]"
            assert f"the offsets {READ} to {READ + DELETED - 1}" in warnings[where]
        lost = float(SOURCE_PARTITIONS * DELETED)
        assert f'hifi_collect_deleted_records_total{{pipe="orders"}} {lost}' in get(admin, "/metrics")

        def alarms() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = json.loads(get(port, "/api/v1/alarms"))["active"]
            return [one for one in found if one["kind"] == "source-deleted"]

        await until(lambda: len(alarms()) == SOURCE_PARTITIONS)
        assert {one["pipe"] for one in alarms()} == {"orders"}
        cause = (
            f"{DELETED} records of {stream.source}[0], offsets {READ} to {READ + DELETED - 1}, were deleted"
        )
        assert any(cause in one["cause"] for one in alarms())
