"""ingest: HTTP requests > events > topic `raw`. Answers 202 only after Kafka has acknowledged every event.

Every second it reports on the topic `accepted` what it acknowledged to senders.
"""

import asyncio

from hifi.delivery.ack_reporting import close, report_acks
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.runtime import log
from hifi.runtime.http import server
from hifi.runtime.http.limits import ConnectionLimits
from hifi.runtime.service import Service, run
from hifi_ingest.http.app import App
from hifi_ingest.http.context import IngestContext
from hifi_ingest.http.write_keys import WriteKeys
from hifi_ingest.lifecycle import connect, follow_backlog, share_quotas
from hifi_ingest.settings import IngestSettings

logger = log.get(__name__)


async def ingest(service: Service, settings: IngestSettings) -> None:
    """Accept events until the service stops."""
    app = App(service.health)
    registry = PipeRegistry(settings.kafka, settings.topics, service.health)
    keys = WriteKeys(registry, service.health, settings.ingest_keys_refresh_s)
    producer = Producer(
        settings.kafka, settings.instance, buffer_bytes=settings.ingest_buffer_bytes, in_step=True
    )
    limits = ConnectionLimits(
        head_bytes=settings.ingest_max_head_bytes,
        head_s=settings.ingest_head_timeout_s,
        request_s=settings.ingest_body_timeout_s,
        connections=settings.ingest_max_connections,
    )
    sock = server.listen(settings.ingest_host, settings.ingest_port, shared=True)
    drain_s = settings.drain_s / 2
    async with server.serve(app, sock, drain_s=drain_s, limits=limits, on_refused=app.count, gate=app.refuse):
        logger.info("ingest-listening", host=settings.ingest_host, port=sock.getsockname()[1])
        if not await service.unless_stopped(connect(settings, registry, keys, producer, service.health)):
            return
        context = IngestContext(settings, registry, keys, producer, service.health)
        app.open(context)
        service.health.state = "running"
        background = [
            asyncio.create_task(report_acks(context.reporter, producer, service.health)),
            asyncio.create_task(context.admission.adjust()),
            asyncio.create_task(follow_backlog(settings, context, service.health)),
            asyncio.create_task(share_quotas(settings, context)),
        ]
        await service.stopping.wait()
    for task in background:
        task.cancel()
    await close(context.reporter, producer)
    await keys.stop()
    await registry.stop()


def main() -> None:
    """Entry point of `hifi-ingest`."""
    run("ingest", IngestSettings, ingest)


if __name__ == "__main__":
    main()
