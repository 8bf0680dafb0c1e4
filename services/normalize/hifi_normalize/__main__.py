"""normalize: topic `raw` > schema, function or fields, masks of the event's pipe > topic `normalized`, same partition.

Events that a pipe rejects go to the dead letters. Events that a client sent before end with the receipt `duplicate`.
"""

import asyncio
from typing import Final

from hifi.kafka.admin import matching_partitions
from hifi.kafka.consumer import Consumer, ConsumerOptions
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.health import Health
from hifi.runtime.service import Service, run
from hifi_normalize.compiled_pipes import CompiledPipes
from hifi_normalize.functions.function_runner import FunctionLimits, FunctionRunner
from hifi_normalize.idempotency.idempotency_cache import IdempotencyCache
from hifi_normalize.settings import NormalizeSettings
from hifi_normalize.step import SERVICE, Normalizer

_GATHER_S: Final = 0.04
"""Two rounds of ingest. Each fetch causes a round of enrich and egest, too, and rounds are most of their cost."""


async def normalize(service: Service, settings: NormalizeSettings) -> None:
    """Normalize events until the service stops."""
    topics, health = settings.topics, service.health
    registry = PipeRegistry(settings.kafka, topics, health)
    limits = FunctionLimits(
        settings.normalize_function_deadline_s,
        settings.normalize_function_mean_s,
        settings.normalize_function_memory_mb * 2**20,
    )
    runner = FunctionRunner(limits, health)
    pipes = CompiledPipes(registry, health, settings.normalize_broken_retry_s, runner)
    producer = Producer(settings.kafka, settings.instance, buffer_bytes=settings.normalize_buffer_bytes)
    cache = IdempotencyCache(
        settings.kafka,
        topics.ids,
        topics.source_positions,
        producer,
        health,
        window_s=settings.normalize_idempotency_window_s,
        max_fingerprints=settings.normalize_max_fingerprints,
    )
    normalizer = Normalizer(
        registry, pipes, runner, producer, cache, topics, health, pipe_wait_s=settings.normalize_pipe_wait_s
    )
    options = ConsumerOptions([topics.raw], topics.group(SERVICE), gather_s=_GATHER_S, in_step=True)
    consumer = Consumer(service, settings, options, normalizer.step, normalizer.poisoned)
    if await service.unless_stopped(connect(settings, registry, producer, health)):
        pipes.start()
        background = [asyncio.create_task(coroutine) for coroutine in (pipes.retry_broken(), cache.sweep())]
        health.state = "running"
        await consumer.run()
        for task in background:
            task.cancel()
    await runner.stop()
    await producer.stop()
    await registry.stop()


async def connect(
    settings: NormalizeSettings, registry: PipeRegistry, producer: Producer, health: Health
) -> None:
    """Load pipes, connect the producer and check the topics; retries for as long as Kafka is unavailable."""
    await asyncio.gather(registry.start(), producer.connect(health))
    topics = settings.topics
    assert registry.partitions is not None
    written = [
        topics.raw,
        topics.normalized,
        topics.dead_letter,
        topics.receipts,
        topics.ids,
        topics.source_positions,
    ]
    await matching_partitions(settings.kafka, written, registry.partitions, health)


def main() -> None:
    """Entry point of `hifi-normalize`."""
    run("normalize", NormalizeSettings, normalize)


if __name__ == "__main__":
    main()
