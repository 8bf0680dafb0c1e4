"""The backlog of a stream, read from a real broker: what waits, and what a running batch of Spark has processed."""

import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from hifi import event
from hifi.kafka.admin import create_topics
from hifi.topics import Topics
from hifi_cli.mesh_state.backlog import read_backlog

PARTITIONS = 2


@pytest.fixture
async def topics(kafka):
    topics = Topics(f"t{uuid.uuid4().hex[:8]}")
    await create_topics(kafka, topics, partitions=PARTITIONS, replication=1)
    return topics


async def write(kafka, topic, partition, raw_offsets, **more):
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    for raw in raw_offsets:
        headers = event.packed({event.IN: b"0", event.RAW: b"%d" % raw, **more})
        await producer.send(topic, b"", partition=partition, headers=headers)
    await producer.stop()


async def commit(kafka, group, offsets):
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka, group_id=group, enable_auto_commit=False)
    await consumer.start()
    consumer.assign(list(offsets))
    await consumer.commit({tp: OffsetAndMetadata(offset, "") for tp, offset in offsets.items()})
    await consumer.stop()


async def test_what_a_running_batch_has_processed_does_not_wait(kafka, topics):
    first, second = (TopicPartition(topics.normalized, number) for number in range(PARTITIONS))
    # Dead letters leave gaps in `raw`: offsets of `normalized` and `raw` are not the same.
    await write(kafka, topics.normalized, 0, range(0, 2000, 2))
    await write(kafka, topics.normalized, 1, range(50))
    await commit(kafka, topics.group("enrich"), {first: 100, second: 50})
    # Enrich has processed the partition 0 up to its record 700, and nothing of its batch's beginning is missing.
    await write(kafka, topics.enriched, 0, range(0, 1402, 2))
    found = await read_backlog(kafka, topics)
    assert found.uncommitted == {"enrich": 601}
    assert found.waiting["enrich"] == 299
    assert found.waiting["egest"] == 701, "egest has committed nothing"


async def test_without_results_of_the_running_batch_all_uncommitted_records_wait(kafka, topics):
    first = TopicPartition(topics.normalized, 0)
    await write(kafka, topics.normalized, 0, range(30))
    await commit(kafka, topics.group("enrich"), {first: 10})
    assert (await read_backlog(kafka, topics)).waiting["enrich"] == 20
    await write(kafka, topics.enriched, 0, range(10))
    found = await read_backlog(kafka, topics)
    assert (found.waiting["enrich"], found.uncommitted) == (20, {})


async def test_a_replayed_dead_letter_says_nothing_about_progress(kafka, topics):
    await write(kafka, topics.normalized, 0, range(30))
    await write(kafka, topics.normalized, 0, [3], hifi_replay=b"1")
    await write(kafka, topics.normalized, 0, range(30, 40))
    await write(kafka, topics.enriched, 0, range(20))
    await write(kafka, topics.enriched, 0, [39], hifi_replay=b"1")
    found = await read_backlog(kafka, topics)
    assert (found.waiting["enrich"], found.uncommitted) == (21, {"enrich": 20})
