"""ingest: HTTP requests > events > topic `raw`. Answers 202 only after Kafka has acknowledged every event.

Every second it reports on the topic `accepted` the events that it acknowledged to senders.
"""

import contextlib

from hifi.delivery.ack_reporting import AckReports
from hifi.kafka.certificate_reports import report_certificates
from hifi.kafka.producer import Producer
from hifi.kafka.topic_check import TopicCheck
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.running import running
from hifi.runtime.service import Service, run
from hifi_ingest.accept.key_usage import KeyUsageReports
from hifi_ingest.http.app import App
from hifi_ingest.http.context import IngestContext
from hifi_ingest.http.issued_keys import FollowedKeys
from hifi_ingest.http.write_keys import WriteKeys
from hifi_ingest.lifecycle import follow_backlog, serve_requests, share_quotas
from hifi_ingest.settings import IngestSettings


async def ingest(service: Service, settings: IngestSettings) -> None:
    """Accept events until the service stops."""
    topics, health = settings.topics, service.health
    app = App(health)
    registry = PipeRegistry(settings.kafka, topics, health, ("source",))
    topic_check = TopicCheck(settings.kafka, [topics.raw, topics.accepted], registry.partition_count, health)
    issued_keys = FollowedKeys(settings.kafka, topics, health)
    keys = WriteKeys(registry, issued_keys, health, settings.ingest_keys_refresh_s)
    buffer_bytes = settings.ingest_buffer_bytes
    producer = Producer(
        settings.kafka, settings.instance, buffer_bytes=buffer_bytes, in_step=True, health=health
    )
    async with contextlib.AsyncExitStack() as server_stack:
        # Requests are refused, with a reason, until all parts have started.
        await server_stack.enter_async_context(serve_requests(app, settings, health))
        async with running(service, registry, topic_check, issued_keys, keys, producer):
            context = IngestContext(settings, registry, keys, producer, health)
            app.open(context)
            health.state = "running"
            async with running(
                service,
                AckReports(context.reporter, producer, health),
                KeyUsageReports(settings.kafka, topics.key_usage, context.key_usage, settings.instance),
                background_work=[
                    context.admission.adjust,
                    lambda: follow_backlog(settings, context, health),
                    lambda: share_quotas(settings, context),
                    issued_keys.report_uses,
                ],
            ):
                await service.stopping.wait()
                await (
                    server_stack.aclose()
                )  # finishes running requests while Kafka can still acknowledge them


def main() -> None:
    """Entry point of `hifi-ingest`."""
    run("ingest", IngestSettings, ingest, report_certificates)


if __name__ == "__main__":
    main()
