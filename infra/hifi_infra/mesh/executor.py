"""The executor of a mesh: an HTTP API with which actors of the control plane change its instances.

Every change carries the fencing token of the step that it belongs to. The executor refuses a token that is lower than
the highest one it has seen, so an actor that was frozen in a step changes nothing after another one has acted.
"""

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, Protocol

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hifi.runtime.errors import HifiError, Misconfigured
from hifi.runtime.http.problem import Problem
from hifi_infra.mesh.executed_instance import ExecutedInstance

INSTANCES: Final = "/v1/instances"
INSTANCE: Final = "/v1/instances/{name}"
SERVICE: Final = "/v1/services/{service}/instances"
RELEASE: Final = "/v1/services/{service}/release"


class ExecutedMesh(Protocol):
    """What the executor needs of a mesh: see `hifi_infra.mesh.mesh.Mesh` and `hifi_infra.containers.container_mesh`."""

    def executed(self) -> Sequence[ExecutedInstance]:
        """Every instance of the data plane and, where the mesh runs it, of the control plane."""

    async def scale(self, service: str, count: int, reason: str = "") -> None:
        """Set the number of instances; returns once surplus ones have drained."""

    async def set_release(self, name: str, release: str, reason: str) -> None:
        """Have an instance run a release; returns once the one before has drained."""

    async def remove(self, name: str, reason: str) -> None:
        """Drain and end an instance."""

    def set_default_release(self, service: str, release: str) -> None:
        """Have instances of a service that start from now on run a release."""


class Executor:
    """Answers the requests of actors; one change at a time.

    Args:
        mesh: what is changed.
        secret: what an actor must send as bearer token; empty: a new one is made.
        highest_token: the highest token of the steps of an executor before this one; -1: there was none.
        keep_token: called with each token that is higher, before its change is made.
    """

    def __init__(
        self,
        mesh: ExecutedMesh,
        *,
        secret: str = "",
        highest_token: int = -1,
        keep_token: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.secret = secret or secrets.token_urlsafe(32)
        self._mesh = mesh
        self._changing = asyncio.Lock()
        self._highest_token = highest_token
        self._keep_token = keep_token

    def app(self) -> Starlette:
        """The API as an ASGI app."""
        return Starlette(
            routes=[
                Route(INSTANCES, self._list_instances, methods=["GET"]),
                Route(INSTANCE, self._set_release, methods=["PUT"]),
                Route(INSTANCE, self._remove, methods=["DELETE"]),
                Route(SERVICE, self._set_count, methods=["PUT"]),
                Route(RELEASE, self._set_default_release, methods=["PUT"]),
            ],
            exception_handlers={Problem: _problem},
        )

    async def _list_instances(self, request: Request) -> Response:
        self._require_secret(request)
        instances = [instance.json() for instance in self._mesh.executed()]
        return Response(orjson.dumps({"instances": instances}), media_type="application/json")

    async def _set_count(self, request: Request) -> Response:
        body = await self._read(request, "count", "reason")
        service, count = request.path_params["service"], body["count"]
        if not isinstance(count, int):
            raise Problem(400, "Send the number of instances as `count`.")
        async with self._step(body["token"]):
            await self._mesh.scale(service, count, str(body["reason"]))
        return Response(orjson.dumps({"service": service, "count": count}), media_type="application/json")

    async def _set_release(self, request: Request) -> Response:
        body = await self._read(request, "release", "reason")
        name, release = request.path_params["name"], str(body["release"])
        async with self._step(body["token"]):
            await self._mesh.set_release(name, release, str(body["reason"]))
        return Response(orjson.dumps({"name": name, "release": release}), media_type="application/json")

    async def _remove(self, request: Request) -> Response:
        body = await self._read(request, "reason")
        name = request.path_params["name"]
        async with self._step(body["token"]):
            await self._mesh.remove(name, str(body["reason"]))
        return Response(orjson.dumps({"name": name}), media_type="application/json")

    async def _set_default_release(self, request: Request) -> Response:
        body = await self._read(request, "release")
        service, release = request.path_params["service"], str(body["release"])
        async with self._step(body["token"]):
            self._mesh.set_default_release(service, release)
        return Response(orjson.dumps({"service": service, "release": release}), media_type="application/json")

    async def _read(self, request: Request, *names: str) -> dict[str, Any]:
        """The body of a change, with these keys besides the token."""
        self._require_secret(request)
        try:
            body: dict[str, Any] = orjson.loads(await request.body())
            return {"token": int(body["token"])} | {name: body[name] for name in names}
        except (ValueError, KeyError, TypeError):
            keys = ", ".join(f"`{name}`" for name in names)
            raise Problem(400, f"Send JSON with the number `token` and with {keys}.") from None

    @contextlib.asynccontextmanager
    async def _step(self, token: int) -> AsyncIterator[None]:
        """Make a change while no other is made, unless its step is over."""
        async with self._changing:
            if token < self._highest_token:
                raise Problem(
                    409,
                    f"The step {token} is over: step {self._highest_token} has begun since. Take a new step.",
                    title="Fenced",
                )
            try:
                if token > self._highest_token:
                    self._keep_token(token)
                self._highest_token = token
                yield
            except Misconfigured as error:
                raise Problem(400, str(error)) from None
            except HifiError as error:
                raise Problem(503, str(error)) from None

    def _require_secret(self, request: Request) -> None:
        sent = request.headers.get("authorization", "")
        if not hmac.compare_digest(sent.encode(), f"Bearer {self.secret}".encode()):
            raise Problem(401, "Send the secret of this executor as `Authorization: Bearer SECRET`.")


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()
