"""normalize: topic `raw` > schema, function or fields, masks of the event's pipe > topic `normalized`, same partition.

Events that a pipe rejects go to the dead letters. Events that a client sent before end with the receipt `duplicate`.
"""

from typing import Final

from hifi.kafka.certificate_reports import report_certificates
from hifi.kafka.consumer import Consumer, ConsumerOptions
from hifi.kafka.producer import Producer
from hifi.kafka.topic_check import TopicCheck
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.running import running
from hifi.runtime.service import Service, run
from hifi_normalize.compiled_pipes import CompiledPipes
from hifi_normalize.functions.function_runner import FunctionRunner
from hifi_normalize.idempotency.idempotency_cache import IdempotencyCache
from hifi_normalize.settings import NormalizeSettings
from hifi_normalize.stamps.stamps import Stamps
from hifi_normalize.step import SERVICE, Normalizer

_GATHER_S: Final = 0.04
"""Two rounds of ingest. Each fetch causes a round of enrich and egest, too, and rounds are most of their cost."""


async def normalize(service: Service, settings: NormalizeSettings) -> None:
    """Normalize events until the service stops."""
    topics, health = settings.topics, service.health
    registry = PipeRegistry(settings.kafka, topics, health, ("normalize",))
    runner = FunctionRunner(settings.function_limits, health)
    pipes = CompiledPipes(registry, health, settings.normalize_broken_retry_s, runner)
    output_topics = [
        topics.normalized,
        topics.dead_letter,
        topics.receipts,
        topics.ids,
        topics.source_positions,
    ]
    topic_check = TopicCheck(settings.kafka, [topics.raw, *output_topics], registry.partition_count, health)
    buffer_bytes = settings.normalize_buffer_bytes
    producer = Producer(settings.kafka, settings.instance, buffer_bytes=buffer_bytes, health=health)
    cache = IdempotencyCache(
        settings.kafka,
        settings.instance,
        topics.ids,
        topics.source_positions,
        producer,
        health,
        window_s=settings.normalize_idempotency_window_s,
        max_fingerprints=settings.normalize_max_fingerprints,
    )
    stamps = Stamps(registry, producer, topics.normalized, health)
    normalizer = Normalizer(
        registry,
        pipes,
        runner,
        producer,
        cache,
        stamps,
        topics,
        health,
        pipe_wait_s=settings.normalize_pipe_wait_s,
    )
    options = ConsumerOptions(
        [topics.raw], topics.group(SERVICE), gather_s=_GATHER_S, in_step=True, on_assigned=stamps.begin
    )
    consumer = Consumer(service, settings, options, normalizer.step, normalizer.poisoned)
    background_tasks = [pipes.retry_broken, pipes.report_masks, cache.sweep]
    async with running(service, registry, topic_check, producer, pipes, background_work=background_tasks):
        health.state = "running"
        await consumer.run()


def main() -> None:
    """Entry point of `hifi-normalize`."""
    run("normalize", NormalizeSettings, normalize, report_certificates)


if __name__ == "__main__":
    main()
