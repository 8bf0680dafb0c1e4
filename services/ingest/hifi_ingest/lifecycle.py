"""Start of ingest: connect to Kafka, follow the backlog, share quotas."""

import asyncio

from hifi.kafka.admin import matching_partitions
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.health import Health
from hifi_ingest.admission.backlog_monitor import BacklogMonitor
from hifi_ingest.admission.quota_exchange import QuotaExchange
from hifi_ingest.http.context import IngestContext
from hifi_ingest.http.write_keys import WriteKeys
from hifi_ingest.settings import IngestSettings


async def connect(
    settings: IngestSettings, registry: PipeRegistry, keys: WriteKeys, producer: Producer, health: Health
) -> None:
    """Load pipes and write keys and connect the producer; retries for as long as Kafka is unavailable."""
    await asyncio.gather(registry.start(), producer.connect(health))
    topics = settings.topics
    assert registry.partitions is not None
    await matching_partitions(settings.kafka, [topics.raw, topics.accepted], registry.partitions, health)
    await keys.start()


async def follow_backlog(settings: IngestSettings, context: IngestContext, health: Health) -> None:
    """Limit what is accepted by the lag of the stages behind ingest, until cancelled."""
    if not settings.ingest_max_backlog_s:
        return
    partitions = context.registry.partitions
    assert partitions is not None
    await BacklogMonitor(
        settings.kafka,
        settings.topics,
        partitions,
        context.admission.backlog,
        health,
        settings.ingest_max_backlog_s,
    ).run()


async def share_quotas(settings: IngestSettings, context: IngestContext) -> None:
    """Share quotas with the other processes of ingest, until cancelled."""
    epoch = f"{context.reporter.partitions[0].epoch:016x}"
    await QuotaExchange(settings.kafka, settings.topics.accepted, epoch, context.quotas).run()
