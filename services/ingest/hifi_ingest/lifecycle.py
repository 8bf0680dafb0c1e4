"""The API of ingest and its background tasks: follow the backlog, share quotas."""

import contextlib
from collections.abc import AsyncIterator

from hifi.runtime import log
from hifi.runtime.health import Health
from hifi.runtime.http import server
from hifi.runtime.http.limits import ConnectionLimits
from hifi.runtime.http.tls import server_certificate
from hifi_ingest.admission.backlog_monitor import BacklogMonitor
from hifi_ingest.admission.quota_exchange import QuotaExchange
from hifi_ingest.http.app import App
from hifi_ingest.http.context import IngestContext
from hifi_ingest.settings import IngestSettings

logger = log.get(__name__)


@contextlib.asynccontextmanager
async def serve_requests(app: App, settings: IngestSettings, health: Health) -> AsyncIterator[None]:
    """Serve the API while the block runs, and finish running requests at its end."""
    limits = ConnectionLimits(
        head_bytes=settings.ingest_max_head_bytes,
        head_s=settings.ingest_head_timeout_s,
        request_s=settings.ingest_body_timeout_s,
        connections=settings.ingest_max_connections,
    )
    listen_socket = server.listen(settings.ingest_host, settings.ingest_port, shared=True)
    drain_s = settings.drain_s / 2
    certificate = server_certificate(
        settings.ingest_tls_certificate_file, settings.ingest_tls_key_file, health
    )
    async with server.serve(
        app,
        listen_socket,
        drain_s=drain_s,
        limits=limits,
        on_refused=app.count,
        gate=app.refuse,
        certificate=certificate,
    ):
        logger.info("ingest-listening", host=settings.ingest_host, port=listen_socket.getsockname()[1])
        yield


async def follow_backlog(settings: IngestSettings, context: IngestContext, health: Health) -> None:
    """Limit the accepted events by the lag of the stages behind ingest, until cancelled."""
    if not settings.ingest_max_backlog_s:
        return
    await BacklogMonitor(
        settings.kafka,
        settings.instance,
        settings.topics,
        context.registry.partition_count(),
        context.admission.backlog,
        health,
        settings.ingest_max_backlog_s,
    ).run()


async def share_quotas(settings: IngestSettings, context: IngestContext) -> None:
    """Share quotas with the other processes of ingest, until cancelled."""
    epoch = f"{context.reporter.partitions[0].epoch:016x}"
    await QuotaExchange(
        settings.kafka, settings.instance, settings.topics.accepted, epoch, context.quotas
    ).run()
