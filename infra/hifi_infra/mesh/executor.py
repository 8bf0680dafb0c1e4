"""The executor of a mesh: an HTTP API with which actors of the control plane change its instances.

Every change carries the fencing token of the action that it belongs to. The executor refuses a token that is lower
than the highest one it has seen, so an actor that was frozen in an action changes nothing after another one has acted.
"""

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hifi.runtime.errors import HifiError, Misconfigured
from hifi.runtime.health import version
from hifi.runtime.http.openapi import document, json_response
from hifi.runtime.http.problem import Problem
from hifi.runtime.http.trusted_hosts import TrustedHosts
from hifi_infra.mesh.executed_instance import ExecutedInstance
from hifi_infra.mesh.executor_operations import (
    API,
    OPERATIONS,
    CountChange,
    DefaultReleaseChange,
    InstanceChange,
    ReleaseChange,
    Removal,
)

_Change = TypeVar("_Change", bound=InstanceChange)


class ExecutedMesh(Protocol):
    """Interface of a mesh for the executor, as in `hifi_infra.mesh.mesh` and `hifi_infra.containers.container_mesh`."""

    def executed(self) -> Sequence[ExecutedInstance]:
        """Every instance of the data plane and, where the mesh runs it, of the control plane."""

    async def scale(self, service: str, count: int, reason: str = "") -> None:
        """Set the number of instances; returns once surplus ones have drained."""

    async def set_release(self, name: str, release: str, reason: str) -> None:
        """Have an instance run a release; returns once the one before has drained."""

    async def remove(self, name: str, reason: str) -> None:
        """Drain and end an instance."""

    async def set_default_release(self, service: str, release: str) -> None:
        """Have instances of a service that start from now on run a release."""


class Executor:
    """Answers the requests of actors; one change at a time.

    Args:
        mesh: what is changed.
        secret: what an actor must send as bearer token; empty: a new one is made.
        highest_token: the highest token of the actions of an executor before this one; -1: there was none.
        keep_token: called with each token that is higher, before its change is made.
        hosts: names with a dot by which it is reached.
    """

    def __init__(
        self,
        mesh: ExecutedMesh,
        *,
        secret: str = "",
        highest_token: int = -1,
        keep_token: Callable[[int], None] = lambda _: None,
        hosts: Iterable[str] = (),
    ) -> None:
        self.secret = secret or secrets.token_urlsafe(32)
        self._mesh = mesh
        self._changing = asyncio.Lock()
        self._highest_token = highest_token
        self._keep_token = keep_token
        self._hosts = tuple(hosts)

    def app(self) -> Starlette:
        """The API as an ASGI app."""
        return Starlette(
            routes=[
                Route("/openapi.json", _openapi),
                *(
                    Route(operation.path, getattr(self, operation.name), methods=[operation.method])
                    for operation in OPERATIONS
                ),
            ],
            exception_handlers={Problem: _problem},
            middleware=[Middleware(TrustedHosts, names=self._hosts)],
        )

    async def list_instances(self, request: Request) -> Response:
        """GET all instances."""
        self._require_secret(request)
        return json_response({"instances": [instance.json() for instance in self._mesh.executed()]})

    async def set_count(self, request: Request) -> Response:
        """PUT the number of instances of a service."""
        change, service = await self._read(request, CountChange), request.path_params["service"]
        async with self._fenced_change(change.token):
            await self._mesh.scale(service, change.count, change.reason)
        return json_response({"service": service, "count": change.count})

    async def set_release(self, request: Request) -> Response:
        """PUT the release of an instance."""
        change, name = await self._read(request, ReleaseChange), request.path_params["name"]
        async with self._fenced_change(change.token):
            await self._mesh.set_release(name, change.release, change.reason)
        return json_response({"name": name, "release": change.release})

    async def remove(self, request: Request) -> Response:
        """DELETE an instance."""
        change, name = await self._read(request, Removal), request.path_params["name"]
        async with self._fenced_change(change.token):
            await self._mesh.remove(name, change.reason)
        return json_response({"name": name})

    async def set_default_release(self, request: Request) -> Response:
        """PUT the release of new instances of a service."""
        change, service = await self._read(request, DefaultReleaseChange), request.path_params["service"]
        async with self._fenced_change(change.token):
            await self._mesh.set_default_release(service, change.release)
        return json_response({"service": service, "release": change.release})

    async def _read(self, request: Request, kind: type[_Change]) -> _Change:
        """The body of a change."""
        self._require_secret(request)
        try:
            return kind.model_validate_json(await request.body())
        except ValidationError as error:
            invalid_fields = "; ".join(
                f"{'.'.join(map(str, field['loc'])) or 'the body'}: {field['msg']}"
                for field in error.errors()
            )
            raise Problem(400, f"{invalid_fields}; see /openapi.json.") from None

    @contextlib.asynccontextmanager
    async def _fenced_change(self, token: int) -> AsyncIterator[None]:
        """Make a change while no other is made, unless its action is over."""
        async with self._changing:
            if token < self._highest_token:
                raise Problem(
                    409,
                    f"The action {token} is over: action {self._highest_token} has begun since. Begin a new one.",
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
        authorization = request.headers.get("authorization", "")
        if not hmac.compare_digest(authorization.encode(), f"Bearer {self.secret}".encode()):
            raise Problem(401, "Send the secret of this executor as `Authorization: Bearer SECRET`.")


async def _openapi(_: Request) -> Response:
    return json_response(document(OPERATIONS, version("executor"), API))


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()
