"""The records that services of a stream could process now, by their committed offsets.

A delivery on a retry tier is due once its append time plus the tier's delay has passed. Before that no number of
retriers could process it, so it does not count here.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError

from hifi.errors import Retryable
from hifi.kafka.security import client_options
from hifi.topics import Topics

ANSWER_S: Final = 10.0


async def due_backlog(bootstrap: str, topics: Topics) -> dict[str, int]:
    """Records that wait for normalize, egest and the retrier and that can be processed now.

    Args:
        bootstrap: `HOST:PORT,…`.
        topics: the stream's.

    Returns:
        Service to number of records.

    Raises:
        Retryable: Kafka did not answer.
    """
    admin = AIOKafkaAdminClient(**client_options(bootstrap))
    consumer = AIOKafkaConsumer(**client_options(bootstrap), enable_auto_commit=False)
    try:
        async with asyncio.timeout(ANSWER_S):
            await admin.start()
            await consumer.start()
            inputs = {
                "normalize": {topics.raw: 0.0},
                "egest": {topics.enriched: 0.0, topics.retry_out: 0.0},
                "retrier": {topics.retry_in(tier): tier.delay_s for tier in topics.tiers},
            }
            return {
                service: await _due_records(admin, consumer, topics.group(service), delays_s)
                for service, delays_s in inputs.items()
            }
    except (KafkaError, OSError, TimeoutError) as error:
        raise Retryable(f"Kafka at {bootstrap} did not return its offsets: {error!r}") from error
    finally:
        await consumer.stop()
        await admin.close()


async def _due_records(
    admin: AIOKafkaAdminClient, consumer: AIOKafkaConsumer, group: str, delays_s: Mapping[str, float]
) -> int:
    partitions = [
        TopicPartition(topic["topic"], each["partition"])
        for topic in await admin.describe_topics(list(delays_s))
        for each in topic["partitions"]
    ]
    starts = await consumer.beginning_offsets(partitions)
    ends = await _due_ends(consumer, partitions, delays_s)
    committed = await _committed(admin, group)
    return sum(
        max(0, end - max(starts[partition], committed.get(partition, 0))) for partition, end in ends.items()
    )


async def _due_ends(
    consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition], delays_s: Mapping[str, float]
) -> dict[TopicPartition, int]:
    """For each partition the offset of its first record that is not due yet, else its end offset."""
    ends: dict[TopicPartition, int] = dict(await consumer.end_offsets(partitions))
    now_ms = time.time() * 1000
    due_before_ms = {
        each: int(now_ms - delays_s[each.topic] * 1000) for each in partitions if delays_s[each.topic]
    }
    if due_before_ms:
        for partition, found in (await consumer.offsets_for_times(due_before_ms)).items():
            if found is not None:  # None: every record is older
                ends[partition] = min(ends[partition], found.offset)
    return ends


async def _committed(admin: AIOKafkaAdminClient, group: str) -> dict[TopicPartition, int]:
    try:
        offsets = await admin.list_consumer_group_offsets(group)
    except GroupCoordinatorNotAvailableError:  # no group of this cluster has had a member yet
        return {}
    return {partition: found.offset for partition, found in offsets.items()}
