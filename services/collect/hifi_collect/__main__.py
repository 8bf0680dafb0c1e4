"""collect: sources of pipes > events > topic `raw`. Commits a position only after Kafka has acknowledged its event.

Every second it reports on the topic `accepted` what it wrote, and how far each source is. The backfill of a source
has a rate of its own.
"""

import asyncio
from typing import Final

from hifi.delivery.ack_report import AckReporter
from hifi.delivery.ack_reporting import close, report_acks
from hifi.kafka.admin import matching_partitions
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.service import Service, run
from hifi_collect.pace.source_paces import SourcePaces
from hifi_collect.raw_writer import RawWriter
from hifi_collect.settings import CollectSettings
from hifi_collect.source_owner import SourceOwner
from hifi_collect.source_readers import SourceReaders

SERVICE: Final = "collect"


async def collect(service: Service, settings: CollectSettings) -> None:
    """Read all sources until the service stops."""
    topics, health = settings.topics, service.health
    registry = PipeRegistry(settings.kafka, topics, health)
    producer = Producer(
        settings.kafka, settings.instance, buffer_bytes=settings.collect_buffer_bytes, in_step=True
    )

    async def connect() -> None:
        """Load pipes, connect the producer and check the topics, however long Kafka is away."""
        await asyncio.gather(registry.start(), producer.connect(health))
        assert registry.partitions is not None
        await matching_partitions(settings.kafka, [topics.raw, topics.accepted], registry.partitions, health)

    if await service.unless_stopped(connect()):
        assert registry.partitions is not None
        paces = SourcePaces(settings, registry.partitions)
        reporter = AckReporter(
            producer, topics.accepted, registry.partitions, service=SERVICE, sources=paces.reports
        )
        writer = RawWriter(producer, topics.raw, reporter, settings.time_tolerance_s)
        owner = SourceOwner(settings, health)
        readers = SourceReaders(service, settings, registry, writer, owner, paces)
        following = asyncio.create_task(owner.follow(), name="follow the colours")
        health.state = "running"
        reporting = asyncio.create_task(report_acks(reporter, producer, health))
        pacing = asyncio.create_task(paces.run())
        await readers.run()
        following.cancel()
        pacing.cancel()
        reporting.cancel()
        await close(reporter, producer)
    else:
        await producer.stop()
    await registry.stop()


def main() -> None:
    """Entry point of `hifi-collect`."""
    run(SERVICE, CollectSettings, collect)


if __name__ == "__main__":
    main()
