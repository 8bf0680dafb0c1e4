"""How many records each service of a stream has still to read, by its committed offsets."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from hifi.errors import Retryable
from hifi.topics import Topics

ANSWER_S: Final = 10.0


def reads(topics: Topics) -> dict[str, Sequence[str]]:
    """Service to the topics that it reads."""
    return {
        "normalize": [topics.raw],
        "enrich": [topics.normalized],
        "egest": [topics.enriched, topics.retry_out],
        "retrier": [topics.retry_in(tier) for tier in topics.tiers],
    }


async def backlog(bootstrap: str, topics: Topics) -> dict[str, int]:
    """Service to the records that wait for it. For the retrier most of them are only not due yet.

    Raises:
        Retryable: Kafka does not answer.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            return await _backlog(bootstrap, topics)
    except (KafkaError, OSError, TimeoutError) as error:
        raise Retryable(f"Kafka at {bootstrap} does not tell its offsets: {error!r}") from error


async def _committed(admin: Any, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    try:
        return dict(await admin.list_consumer_group_offsets(group))
    except GroupCoordinatorNotAvailableError:  # nobody has joined any group of this cluster yet
        return {}


async def _backlog(bootstrap: str, topics: Topics) -> dict[str, int]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        await admin.start()
        await consumer.start()
        waiting = {}
        for service, names in reads(topics).items():
            partitions = [
                TopicPartition(one["topic"], part["partition"])
                for one in await admin.describe_topics(list(names))
                for part in one["partitions"]
            ]
            ends = await consumer.end_offsets(partitions)
            starts = await consumer.beginning_offsets(partitions)
            committed = await _committed(admin, topics.group(service))
            waiting[service] = sum(
                end - max(starts[tp], committed[tp].offset if tp in committed else 0)
                for tp, end in ends.items()
            )
        return waiting
    finally:
        await consumer.stop()
        await admin.close()
