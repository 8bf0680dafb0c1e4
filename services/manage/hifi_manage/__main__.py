"""manage: calls of the API > checks > compare-and-set > the topics `declared`, `requests` and `audit`."""

import contextlib

from aiokafka.errors import KafkaError

from hifi.control.principals.oidc.login import configured_login
from hifi.kafka.certificate_reports import report_certificates
from hifi.runtime import log
from hifi.runtime.errors import Misconfigured
from hifi.runtime.http import server
from hifi.runtime.http.tls import server_certificate
from hifi.runtime.http.trusted_hosts import split_hosts
from hifi.runtime.running import running
from hifi.runtime.service import Service, run
from hifi_manage.control_state import ControlState
from hifi_manage.settings import ManageSettings
from hifi_manage.web.api import application

_KAFKA = "kafka"
_INTERVAL_S = 2.0

logger = log.get(__name__)


async def manage(service: Service, settings: ManageSettings) -> None:
    """Serve the API, and follow the control plane's topics, until the service stops."""
    if not settings.control:
        raise Misconfigured("set HIFI_CONTROL; `hifi up --control` does")
    service.health.block(_KAFKA, "the control plane's topics have not been read yet")
    state = ControlState(settings, service.health)
    certificate = server_certificate(
        settings.manage_tls_certificate_file, settings.manage_tls_key_file, service.health
    )
    sock = server.listen(settings.manage_host, settings.manage_port)
    async with contextlib.AsyncExitStack() as serving:
        await serving.enter_async_context(
            server.serve(
                application(
                    state,
                    settings.observe_url,
                    split_hosts(settings.manage_hosts),
                    configured_login(),
                    settings.manage_url,
                    settings.view_url,
                ),
                sock,
                drain_s=2,
                certificate=certificate,
            )
        )
        scheme = "https" if certificate else "http"
        logger.info("api-started", url=f"{scheme}://{settings.manage_host}:{sock.getsockname()[1]}/api/v1")
        async with running(service, state):
            service.health.state = "running"
            while not service.stopping.is_set():
                try:
                    await state.catch_up()
                    service.health.unblock(_KAFKA)
                except (KafkaError, OSError, TimeoutError) as error:
                    logger.warning("control-topics-unreadable", error=repr(error))
                    if not state.fresh:
                        service.health.block(_KAFKA, f"the control plane's topics cannot be read: {error!r}")
                await service.sleep(_INTERVAL_S)
            await serving.aclose()


def main() -> None:
    """Entry point of the program `hifi-manage`."""
    run("manage", ManageSettings, manage, report_certificates)


if __name__ == "__main__":
    main()
