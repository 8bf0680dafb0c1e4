"""The executor of a mesh on one machine: an HTTP API with which actors of the control plane change its instances.

Every change carries the fencing token of the step that it belongs to. The executor refuses a token that is lower than
the highest one it has seen, so an actor that was frozen in a step changes nothing after another one has acted.
"""

import asyncio
import hmac
import secrets
from typing import Any, Final, Protocol

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hifi.errors import HifiError, Misconfigured
from hifi.http.problem import Problem
from hifi_infra.mesh.instance import Instance

INSTANCES: Final = "/v1/instances"
SERVICE: Final = "/v1/services/{service}/instances"


class ExecutedMesh(Protocol):
    """What the executor needs of a mesh: see `hifi_infra.mesh.mesh.Mesh`."""

    @property
    def instances(self) -> dict[str, list[Instance]]:
        """Service to its instances."""

    async def scale(self, service: str, count: int, reason: str = "") -> None:
        """Set the number of instances; returns once surplus ones have drained."""


class Executor:
    """Answers the requests of actors; one change at a time.

    Args:
        mesh: what is changed.
    """

    def __init__(self, mesh: ExecutedMesh) -> None:
        self.secret = secrets.token_urlsafe(32)
        """What an actor must send as bearer token."""
        self._mesh = mesh
        self._changing = asyncio.Lock()
        self._highest_token = -1

    def app(self) -> Starlette:
        """The API as an ASGI app."""
        return Starlette(
            routes=[
                Route(INSTANCES, self._list_instances, methods=["GET"]),
                Route(SERVICE, self._set_count, methods=["PUT"]),
            ],
            exception_handlers={Problem: _problem},
        )

    async def _list_instances(self, request: Request) -> Response:
        self._require_secret(request)
        found = [_described(one) for service in self._mesh.instances.values() for one in service]
        return Response(orjson.dumps({"instances": found}), media_type="application/json")

    async def _set_count(self, request: Request) -> Response:
        self._require_secret(request)
        service = request.path_params["service"]
        try:
            body = orjson.loads(await request.body())
            count, token, reason = int(body["count"]), int(body["token"]), str(body["reason"])
        except (ValueError, KeyError, TypeError):
            raise Problem(
                400, "Send JSON with the numbers `count` and `token` and the text `reason`."
            ) from None
        async with self._changing:
            if token < self._highest_token:
                raise Problem(
                    409,
                    f"The step {token} is over: step {self._highest_token} has begun since. Take a new step.",
                    title="Fenced",
                )
            self._highest_token = token
            try:
                await self._mesh.scale(service, count, reason)
            except Misconfigured as error:
                raise Problem(400, str(error)) from None
            except HifiError as error:
                raise Problem(503, str(error)) from None
        return Response(orjson.dumps({"service": service, "count": count}), media_type="application/json")

    def _require_secret(self, request: Request) -> None:
        sent = request.headers.get("authorization", "")
        if not hmac.compare_digest(sent.encode(), f"Bearer {self.secret}".encode()):
            raise Problem(401, "Send the secret of this executor as `Authorization: Bearer SECRET`.")


def _described(instance: Instance) -> dict[str, Any]:
    return {
        "service": instance.spec.service,
        "name": instance.name,
        "port": instance.spec.port,
        "ready": instance.ready,
        "restarts": instance.restarts,
        "cpu_s": instance.cpu_seconds(),
        "rss_bytes": instance.rss_bytes(),
    }


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()
