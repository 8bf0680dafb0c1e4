"""Retries that are not due are no lag: more retriers could not process them."""

import asyncio
import uuid

from aiokafka import AIOKafkaProducer

from hifi.kafka.admin import create_topics
from hifi.topics import Topics, parse_tiers
from hifi_infra.autoscaler.due_backlog import due_backlog


async def test_only_retries_that_are_due_count_as_backlog(kafka):
    topics = Topics(f"s{uuid.uuid4().hex[:8]}", parse_tiers("1s,1h"))
    await create_topics(kafka, topics, partitions=2, replication=1)
    soon, late = (topics.retry_in(tier) for tier in topics.tiers)
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for topic, count in ((topics.raw, 3), (topics.retry_out, 2), (soon, 4), (late, 5)):
            for number in range(count):
                await producer.send_and_wait(topic, b"x", partition=number % 2)
    await asyncio.sleep(1.1)
    assert await due_backlog(kafka, topics) == {"normalize": 3, "egest": 2, "retrier": 4}
