"""Alive and ready: what a service still waits for, served on /healthz, /readyz and /metrics."""

import os
from importlib import metadata

import orjson
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class Health:
    """The conditions of being ready, each with the reason why it does not hold yet."""

    def __init__(self, service: str, instance: str) -> None:
        self.service = service
        self.instance = instance
        self.state = "starting"
        """One word for a person: starting, running, standby, draining."""
        self._waiting: dict[str, str] = {}
        self._warnings: dict[str, str] = {}

    def block(self, condition: str, reason: str) -> None:
        """A condition does not hold; the reason is one sentence for a person."""
        self._waiting[condition] = reason

    def unblock(self, condition: str) -> None:
        """A condition holds (again)."""
        self._waiting.pop(condition, None)

    def warn(self, subject: str, reason: str | None) -> None:
        """Something works less than declared although the service is ready; None: it works again."""
        if reason is None:
            self._warnings.pop(subject, None)
        else:
            self._warnings[subject] = reason

    @property
    def warnings(self) -> dict[str, str]:
        """Subject to reason, for a person."""
        return dict(self._warnings)

    @property
    def waiting(self) -> dict[str, str]:
        """Condition to reason, empty when ready."""
        return dict(self._waiting)

    @property
    def ready(self) -> bool:
        """No condition is open and the service is not on its way out."""
        return not self._waiting and self.state != "draining"

    def app(self) -> Starlette:
        """The ASGI app of the three pages."""

        async def metrics(_: Request) -> Response:
            """Prometheus' text format."""
            return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

        return Starlette(routes=[*self.routes(), Route("/metrics", metrics)])

    def routes(self) -> list[Route]:
        """The pages /healthz and /readyz, for a service that shows them on a port of its own too."""
        about = {
            "service": self.service,
            "instance": self.instance,
            "version": version(self.service),
            "commit": commit(),
        }

        async def healthz(_: Request) -> Response:
            """Alive."""
            return _json({"status": "alive", "state": self.state, **about})

        async def readyz(_: Request) -> Response:
            """Ready, or what it waits for."""
            ready = self.ready
            body = {
                "status": "ready" if ready else "waiting",
                "state": self.state,
                "waiting": self._waiting,
                "warnings": self._warnings,
                **about,
            }
            return _json(body, 200 if ready else 503)

        return [Route("/healthz", healthz), Route("/readyz", readyz)]


def version(service: str) -> str:
    """Version of the installed package of a service."""
    try:
        return metadata.version(f"hifi-{service}")
    except metadata.PackageNotFoundError:
        return "unknown"


def commit() -> str | None:
    """Commit that the running image was built from (`HIFI_COMMIT`); None outside of an image."""
    return os.environ.get("HIFI_COMMIT") or None


def _json(body: object, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
