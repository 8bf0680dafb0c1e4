"""Writes a log of `enriched` to Kafka."""

from tests.support.state.stamped_log import StampedLog

from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer
from hifi_state.settings import StateSettings


async def written(stamped_log: StampedLog, settings: StateSettings) -> None:
    """Write a log to `enriched` of a new stream."""
    topics = settings.topics
    await create_topics(settings.kafka, topics, partitions=len(stamped_log.partitions), replication=1)
    producer = Producer(settings.kafka, "test")
    await producer.start()
    try:
        for partition, entries in enumerate(stamped_log.partitions):
            records = [entry.record() for entry in entries]
            await producer.send_and_wait(topics.enriched, partition, records)
    finally:
        await producer.stop()
