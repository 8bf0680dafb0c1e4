"""view: raw, normalized or enriched > the newest event of each key in a file > rows over HTTP.

Every instance reads all partitions. Nothing is written to Kafka, so nothing depends on it.
"""

import contextlib

from hifi.kafka.certificate_reports import report_certificates
from hifi.kafka.topic_check import TopicCheck
from hifi.pipe.registry import PipeRegistry
from hifi.runtime import log
from hifi.runtime.http import server
from hifi.runtime.http.tls import server_certificate
from hifi.runtime.running import running
from hifi.runtime.service import Service, run
from hifi_view.settings import ViewSettings
from hifi_view.views import Views, declared_views
from hifi_view.web.api import application
from hifi_view.web.read_keys import ReadKeys

SERVICE = "view"
logger = log.get(__name__)


async def view(service: Service, settings: ViewSettings) -> None:
    """Follow the topics of all views and serve their rows until the service stops."""
    health, topics = service.health, settings.topics
    declarations = declared_views(settings)
    registry = PipeRegistry(settings.kafka, topics, health)
    read_topics = sorted({topics.raw, *(view.from_.at.topic(topics) for view in declarations)})
    topic_check = TopicCheck(settings.kafka, read_topics, registry.partition_count, health)
    read_keys = ReadKeys(declarations, health)
    views = Views(settings, declarations, registry, health)
    certificate = server_certificate(settings.view_tls_certificate_file, settings.view_tls_key_file, health)
    listen_socket = server.listen(settings.view_host, settings.view_port)
    async with contextlib.AsyncExitStack() as server_stack:
        app = application(settings, views, read_keys, service.stopping)
        await server_stack.enter_async_context(
            server.serve(app, listen_socket, drain_s=2, certificate=certificate)
        )
        scheme = "https" if certificate else "http"
        logger.info(
            "views-served", url=f"{scheme}://{settings.view_host}:{listen_socket.getsockname()[1]}/v1/views"
        )
        async with running(service, views, read_keys, registry, topic_check, background_work=[views.run]):
            health.state = "running"
            await service.stopping.wait()
            await server_stack.aclose()


def main() -> None:
    """The program `hifi-view`."""
    run(SERVICE, ViewSettings, view, report_certificates)


if __name__ == "__main__":
    main()
