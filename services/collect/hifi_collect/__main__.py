"""collect: sources of pipes > events > topic `raw`. Commits a position only after Kafka has acknowledged its event.

Every second it reports on the topic `accepted` the records that it wrote and the progress of each source. The backfill
of a source has a rate of its own.
"""

from typing import Final

from hifi.delivery.ack_report import AckReporter
from hifi.delivery.ack_reporting import AckReports
from hifi.delivery.raw_writer import RawWriter
from hifi.kafka.certificate_reports import report_certificates
from hifi.kafka.producer import Producer
from hifi.kafka.topic_check import TopicCheck
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.running import running
from hifi.runtime.service import Service, run
from hifi_collect.pace.backfill_controller import BackfillController
from hifi_collect.settings import CollectSettings
from hifi_collect.source_colour import SourceColour
from hifi_collect.source_readers import SourceReaders

SERVICE: Final = "collect"


async def collect(service: Service, settings: CollectSettings) -> None:
    """Read all sources until the service stops."""
    topics, health = settings.topics, service.health
    registry = PipeRegistry(settings.kafka, topics, health, ("source",))
    topic_check = TopicCheck(settings.kafka, [topics.raw, topics.accepted], registry.partition_count, health)
    producer = Producer(
        settings.kafka,
        settings.instance,
        buffer_bytes=settings.collect_buffer_bytes,
        in_step=True,
        health=health,
    )
    async with running(service, registry, topic_check, producer):
        partitions = registry.partition_count()
        paces = BackfillController(settings, partitions)
        reporter = AckReporter(producer, topics.accepted, partitions, service=SERVICE, sources=paces.reports)
        writer = RawWriter(producer, topics.raw, reporter, settings.time_tolerance_s)
        source_colour = SourceColour(settings, health)
        readers = SourceReaders(service, settings, registry, writer, source_colour, paces)
        reports = AckReports(reporter, producer, health)
        health.state = "running"
        async with running(service, reports, background_work=[source_colour.follow, paces.run]):
            await readers.run()


def main() -> None:
    """Entry point of `hifi-collect`."""
    run(SERVICE, CollectSettings, collect, report_certificates)


if __name__ == "__main__":
    main()
