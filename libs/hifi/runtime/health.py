"""Health of a service: /healthz, /readyz with the conditions that are not met, and /metrics."""

import os
from importlib import metadata

import orjson
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hifi.runtime import log
from hifi.runtime.compiled import import_hook

logger = log.get(__name__)


class Health:
    """Whether a service is ready: the conditions that are not met, each with its reason."""

    def __init__(self, service: str, instance: str) -> None:
        self.service = service
        self.instance = instance
        self.state = "starting"
        """One of starting, running, standby, draining."""
        self._unmet_conditions: dict[str, str] = {}
        self._warnings: dict[str, str] = {}

    def block(self, condition: str, reason: str) -> None:
        """Make the service unready until `unblock`; the reason, one sentence, is shown on /readyz."""
        self._unmet_conditions[condition] = reason

    def unblock(self, condition: str) -> None:
        """The condition is met (again)."""
        self._unmet_conditions.pop(condition, None)

    def warn(self, subject: str, reason: str | None) -> None:
        """Show a warning about a subject on /readyz, which does not make the service unready; None removes it.

        The log has its begin and its end.
        """
        if reason is None:
            if self._warnings.pop(subject, None) is not None:
                logger.info("warning-ended", subject=subject)
            return
        if subject not in self._warnings:
            logger.warning("warning-begun", subject=subject, reason=reason)
        self._warnings[subject] = reason

    @property
    def warnings(self) -> dict[str, str]:
        """Reason by subject."""
        return dict(self._warnings)

    @property
    def waiting(self) -> dict[str, str]:
        """Reason by condition that is not met; empty when ready."""
        return dict(self._unmet_conditions)

    @property
    def ready(self) -> bool:
        """Whether all conditions are met and the service is not draining."""
        return not self._unmet_conditions and self.state != "draining"

    def app(self) -> Starlette:
        """The ASGI app of /healthz, /readyz and /metrics."""

        async def metrics(_: Request) -> Response:
            """Respond with all metrics in Prometheus' text format."""
            return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

        return Starlette(routes=[*self._routes(), Route("/metrics", metrics)])

    def public_routes(self) -> list[Route]:
        """The routes /healthz and /readyz on a port that everybody may reach: without reasons, which name files."""

        async def healthz(_: Request) -> Response:
            """Respond with 200 as long as the process runs."""
            return _json({"status": "alive"})

        async def readyz(_: Request) -> Response:
            """Respond with 200 if ready, else with 503."""
            return _json({"status": "ready"}) if self.ready else _json({"status": "waiting"}, 503)

        return [Route("/healthz", healthz), Route("/readyz", readyz)]

    def _routes(self) -> list[Route]:
        service_info = {
            "service": self.service,
            "instance": self.instance,
            "version": version(self.service),
            "commit": commit(),
            "compiled": import_hook.in_use(),
        }

        async def healthz(_: Request) -> Response:
            """Respond with 200 as long as the process runs."""
            return _json({"status": "alive", "state": self.state, **service_info})

        async def readyz(_: Request) -> Response:
            """Respond with 200 if ready, else with 503 and the conditions that are not met."""
            is_ready = self.ready
            body = {
                "status": "ready" if is_ready else "waiting",
                "state": self.state,
                "waiting": self._unmet_conditions,
                "warnings": self._warnings,
                **service_info,
            }
            return _json(body, 200 if is_ready else 503)

        return [Route("/healthz", healthz), Route("/readyz", readyz)]


def version(service: str) -> str:
    """The version of a service's installed package; `unknown` if it is not installed."""
    try:
        return metadata.version(f"hifi-{service}")
    except metadata.PackageNotFoundError:
        return "unknown"


def commit() -> str | None:
    """The commit that the image was built from (`HIFI_COMMIT`); None outside of an image."""
    return os.environ.get("HIFI_COMMIT") or None


def _json(body: object, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
