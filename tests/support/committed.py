"""Kafka acknowledges the commit of a transaction a little before readers of committed records see it."""

import asyncio
from contextlib import AsyncExitStack

from aiokafka import AIOKafkaConsumer, TopicPartition

WITHIN_S = 300


async def until_readable(kafka: str, topic: str) -> None:
    """Wait until readers of committed records see all that is in partition 0 of a topic now."""
    partition = TopicPartition(topic, 0)
    async with AsyncExitStack() as stack:
        uncommitted_consumer, committed_consumer = [
            await stack.enter_async_context(AIOKafkaConsumer(bootstrap_servers=kafka, isolation_level=level))
            for level in ("read_uncommitted", "read_committed")
        ]
        end = (await uncommitted_consumer.end_offsets([partition]))[partition]
        async with asyncio.timeout(WITHIN_S):
            while (await committed_consumer.end_offsets([partition]))[partition] < end:
                await asyncio.sleep(0.02)
