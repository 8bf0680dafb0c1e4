"""The backlog of a stream, read from a real broker: what waits, and what a running batch of Spark has processed."""

import asyncio
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics, parse_tiers
from hifi.record.fields import packed
from hifi.record.headers import IN, RAW
from hifi.record.heartbeat import heartbeat_record
from hifi_infra.kafka.backlog import LAKE, STEP, due_backlog, read_backlog

PARTITIONS = 2


@pytest.fixture
async def topics(kafka):
    topics = Topics(f"t{uuid.uuid4().hex[:8]}")
    await create_topics(kafka, topics, partitions=PARTITIONS, replication=1)
    return topics


async def write(kafka, topic, partition, raw_offsets, **other_headers):
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    for raw in raw_offsets:
        headers = packed({IN: b"0", RAW: b"%d" % raw, **other_headers})
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
    backlog = await read_backlog(kafka, topics)
    assert backlog.uncommitted == {"enrich": 601}
    assert backlog.waiting["enrich"] == 299
    assert backlog.waiting["egest"] == 701, "egest has committed nothing"


async def test_without_results_of_the_running_batch_all_uncommitted_records_wait(kafka, topics):
    first_partition = TopicPartition(topics.normalized, 0)
    await write(kafka, topics.normalized, 0, range(30))
    await commit(kafka, topics.group("enrich"), {first_partition: 10})
    assert (await read_backlog(kafka, topics)).waiting["enrich"] == 20
    await write(kafka, topics.enriched, 0, range(10))
    backlog = await read_backlog(kafka, topics)
    assert (backlog.waiting["enrich"], backlog.uncommitted) == (20, {})


async def test_a_replayed_dead_letter_says_nothing_about_progress(kafka, topics):
    await write(kafka, topics.normalized, 0, range(30))
    await write(kafka, topics.normalized, 0, [3], hifi_replay=b"1")
    await write(kafka, topics.normalized, 0, range(30, 40))
    await write(kafka, topics.enriched, 0, range(20))
    await write(kafka, topics.enriched, 0, [39], hifi_replay=b"1")
    backlog = await read_backlog(kafka, topics)
    assert (backlog.waiting["enrich"], backlog.uncommitted) == (21, {"enrich": 20})


async def test_heartbeats_show_progress_and_count_as_processed_once_they_are_on_enriched(kafka, topics):
    async def beat(topic, raw_offsets):
        producer = Producer(kafka, "test")
        await producer.start()
        await producer.send_and_wait(topic, 0, [heartbeat_record("p", 10**15, raw, 1) for raw in raw_offsets])
        await producer.stop()

    # A partition without any event.
    await beat(topics.normalized, [-1] * 10)
    await beat(topics.enriched, [-1])
    assert (await read_backlog(kafka, topics)).waiting["enrich"] == 0
    # The newest results are heartbeats only.
    await write(kafka, topics.normalized, 0, range(30))
    await beat(topics.normalized, [29] * 60)
    await write(kafka, topics.enriched, 0, range(30))
    await beat(topics.enriched, [29] * 60)
    await write(kafka, topics.normalized, 0, range(30, 37))
    backlog = await read_backlog(kafka, topics)
    assert (backlog.waiting["enrich"], backlog.uncommitted) == (7, {"enrich": 100})


async def test_only_retries_that_are_due_count_as_due(kafka):
    topics = Topics(f"s{uuid.uuid4().hex[:8]}", parse_tiers("1s,1h"))
    await create_topics(kafka, topics, partitions=PARTITIONS, replication=1)
    early_retries, late_retries = (topics.retry_in(tier) for tier in topics.tiers)
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for topic, count in ((topics.raw, 3), (topics.retry_out, 2), (early_retries, 4), (late_retries, 5)):
            for number in range(count):
                await producer.send_and_wait(topic, b"x", partition=number % PARTITIONS)
    async with asyncio.timeout(30):
        while (due := await due_backlog(kafka, topics)) != {"normalize": 3, "egest": 2, "retrier": 4}:
            assert due["retrier"] < 4, due
    assert (await read_backlog(kafka, topics)).waiting["retrier"] == 9


async def test_deliveries_in_a_removed_retry_tier_wait(kafka, topics):
    removed = Topics(topics.stream, parse_tiers("45s"))
    await create_topics(kafka, removed, partitions=PARTITIONS, replication=1)
    await write(kafka, removed.retry_in(removed.tiers[0]), 0, range(3))
    backlog = await read_backlog(kafka, topics)
    assert (backlog.waiting["retrier"], backlog.due["retrier"]) == (3, 0)


async def test_lake_reads_enriched_from_its_start_and_a_step_from_where_it_first_looked(kafka, topics):
    first, second = (TopicPartition(topics.enriched, number) for number in range(PARTITIONS))
    await write(kafka, topics.enriched, 0, range(10))
    await write(kafka, topics.enriched, 1, range(5))
    services = (LAKE, STEP + "daily")
    assert (await read_backlog(kafka, topics, services)).waiting == {"lake": 15, "state.daily": 0}
    for service in services:
        await commit(kafka, topics.group(service), {first: 4, second: 5})
    backlog = await read_backlog(kafka, topics, services)
    assert backlog.waiting == {"lake": 6, "state.daily": 6}
    assert backlog.ranges["lake"] == {first: range(4, 10), second: range(5, 5)}
    assert set((await read_backlog(kafka, topics)).waiting) == {"normalize", "enrich", "egest", "retrier"}
