"""observe: reads every topic of the stream, and shows what became of the events. It writes only its own topics.

Data flow: topics > partition ledgers > closed minutes > `minutes` > merged minutes > alarms, metrics, API, console.
"""

import contextlib

from hifi.kafka.certificate_reports import report_certificates
from hifi.runtime import log
from hifi.runtime.http import server
from hifi.runtime.http.tls import server_certificate
from hifi.runtime.running import running
from hifi.runtime.service import Service, run
from hifi_observe.observer import Observer
from hifi_observe.settings import ObserveSettings

logger = log.get(__name__)


async def observe(service: Service, settings: ObserveSettings) -> None:
    """Serve the API and the console, and observe the stream, until the service stops."""
    observer = Observer(settings, service.health)
    certificate = server_certificate(
        settings.observe_tls_certificate_file, settings.observe_tls_key_file, service.health
    )
    sock = server.listen(settings.observe_host, settings.observe_port)
    async with contextlib.AsyncExitStack() as serving:
        await serving.enter_async_context(
            server.serve(observer.application(), sock, drain_s=2, certificate=certificate)
        )
        scheme = "https" if certificate else "http"
        logger.info("console-started", url=f"{scheme}://{settings.observe_host}:{sock.getsockname()[1]}/")
        async with running(service, observer):
            service.health.state = "running"
            await service.unless_stopped(observer.run())
            observer.stopping.set()
            await serving.aclose()


def main() -> None:
    """Entry point of the program `hifi-observe`."""
    run("observe", ObserveSettings, observe, report_certificates)


if __name__ == "__main__":
    main()
