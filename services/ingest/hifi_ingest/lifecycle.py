"""Start and end of ingest: connect to Kafka, report acknowledged events every second, close the reports."""

import asyncio
from typing import Final

from hifi import log
from hifi.health import Health
from hifi.kafka.admin import matching_partitions
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi_ingest.accept.ack_report import AckReporter
from hifi_ingest.admission.backlog_monitor import BacklogMonitor
from hifi_ingest.admission.quota_exchange import QuotaExchange
from hifi_ingest.http.context import IngestContext
from hifi_ingest.http.write_keys import WriteKeys
from hifi_ingest.settings import IngestSettings

_CONDITION: Final = "kafka"
_REPORT_S: Final = 1.0
_STALLED_S: Final = 5.0
_CLOSE_S: Final = 8.0

logger = log.get(__name__)


async def connect(
    settings: IngestSettings, registry: PipeRegistry, keys: WriteKeys, producer: Producer, health: Health
) -> None:
    """Load pipes and write keys and connect the producer; retries for as long as Kafka is unavailable."""
    await asyncio.gather(registry.start(), producer.connect(health))
    topics = settings.topics
    assert registry.partitions is not None
    await matching_partitions(settings.kafka, [topics.raw, topics.accepted], registry.partitions, health)
    await keys.start()


async def report_acks(reporter: AckReporter, producer: Producer, health: Health) -> None:
    """Send the reports every second until cancelled; not ready while Kafka acknowledges nothing for 5 s."""
    loop = asyncio.get_running_loop()
    while True:
        reporter.send_reports()
        await asyncio.sleep(_REPORT_S)
        stalled_s = producer.stalled_s(loop.time())
        if stalled_s > _STALLED_S:
            health.block(_CONDITION, f"Kafka has acknowledged nothing for {stalled_s:.0f} s")
        else:
            health.unblock(_CONDITION)


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
    own = f"{context.reporter.partitions[0].epoch:016x}"
    await QuotaExchange(settings.kafka, settings.topics.accepted, own, context.quotas).run()


async def close(reporter: AckReporter, producer: Producer) -> None:
    """Write the closing reports within 8 s, then stop the producer."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await reporter.close()
    except TimeoutError:
        logger.error("ack-report-incomplete", timeout_s=_CLOSE_S)  # noqa: TRY400 - the traceback says nothing
    if not await producer.stop(timeout_s=2):
        logger.error("producer-not-flushed")
