"""normalize: raw > each event's pipe: schema, mapping, masks > normalized, at the same partition; or dead letters.

What a client sends again ends as a duplicate.
"""

import asyncio

from hifi.health import Health
from hifi.kafka.admin import matching_partitions
from hifi.kafka.consumer import Consumer, ConsumerOptions
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.service import Service, run
from hifi.topics import Topics
from hifi_normalize.compiled_pipes import Programs
from hifi_normalize.idempotency.idempotency_cache import Memory
from hifi_normalize.settings import NormalizeSettings
from hifi_normalize.step import SERVICE, Normalizer


async def normalize(service: Service, settings: NormalizeSettings) -> None:
    """Normalize events until the service stops."""
    topics = Topics(settings.stream)
    registry = PipeRegistry(settings.kafka, topics, service.health)
    programs = Programs(registry, service.health, settings.normalize_refresh_s)
    producer = Producer(settings.kafka, settings.instance, buffer_bytes=settings.normalize_buffer_bytes)
    memory = Memory(
        settings.kafka,
        topics.ids,
        producer,
        service.health,
        window_s=settings.normalize_id_window_s,
        most_ids=settings.normalize_ids,
    )
    normalizer = Normalizer(
        registry,
        programs,
        producer,
        memory,
        topics,
        service.health,
        pipe_wait_s=settings.normalize_pipe_wait_s,
    )
    reading = ConsumerOptions([topics.raw], topics.group(SERVICE))
    consumer = Consumer(service, settings, reading, normalizer.step, normalizer.poisoned)
    if await service.unless_stopped(connect(settings, registry, producer, service.health)):
        programs.start()
        background = [asyncio.create_task(each) for each in (programs.keep_trying(), memory.sweep())]
        service.health.state = "running"
        await consumer.run()
        for task in background:
            task.cancel()
    await producer.stop()
    await registry.stop()


async def connect(
    settings: NormalizeSettings, registry: PipeRegistry, producer: Producer, health: Health
) -> None:
    """Return when pipes, producer and topics are there, however long Kafka stays away."""
    await asyncio.gather(registry.start(), producer.connect(health))
    topics = Topics(settings.stream)
    assert registry.partitions is not None
    written = [topics.raw, topics.normalized, topics.dead_letter, topics.receipts, topics.ids]
    await matching_partitions(settings.kafka, written, registry.partitions, health)


def main() -> None:
    """The program `hifi-normalize`."""
    run("normalize", NormalizeSettings, normalize)


if __name__ == "__main__":
    main()
