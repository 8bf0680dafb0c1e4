"""A newer Kafka keeps the formats of the older one, so a cluster goes back on the data that the newer one has used."""

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from hifi.kafka.admin import create_topics
from hifi.kafka.topics import Topics
from hifi_infra.java.jars import kafka_versions
from hifi_infra.kafka.cluster import KafkaCluster

TOPICS = Topics("s")
WRITTEN = 500
OLD, *_, NEW = kafka_versions()


async def write_and_read(kafka: str) -> int:
    """Write records, also in a transaction, and read and commit all that the group has not read; how many those are."""
    await create_topics(kafka, TOPICS, partitions=1, replication=1)
    producer = AIOKafkaProducer(bootstrap_servers=kafka, acks="all", transactional_id="writer")
    await producer.start()
    async with producer.transaction():
        for number in range(WRITTEN):
            await producer.send(TOPICS.raw, b"%d" % number, partition=0)
    await producer.stop()
    consumer = AIOKafkaConsumer(
        TOPICS.raw,
        bootstrap_servers=kafka,
        group_id="reader",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    await consumer.start()
    try:
        partition, count = TopicPartition(TOPICS.raw, 0), 0
        async with asyncio.timeout(120):
            while partition not in consumer.assignment():
                await consumer.getmany(timeout_ms=100, max_records=1)
                await consumer.seek_to_committed()
            end = (await consumer.end_offsets([partition]))[partition]
            while await consumer.position(partition) < end:
                count += sum(map(len, (await consumer.getmany(timeout_ms=500)).values()))
        await consumer.commit()
        return count
    finally:
        await consumer.stop()


@pytest.mark.more
@pytest.mark.timeout(600)
@pytest.mark.parametrize("versions", [(OLD, NEW, OLD), (NEW, OLD)])
async def test_the_older_version_goes_on_where_the_newer_one_stopped(
    versions: tuple[str, ...], tmp_path: Path
) -> None:
    for version in versions:
        cluster = KafkaCluster(tmp_path, version=version, heap_mb=256)
        await cluster.start()
        try:
            assert await write_and_read(cluster.bootstrap) == WRITTEN
        finally:
            await cluster.stop()
