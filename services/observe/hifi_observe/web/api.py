"""The JSON API: read-only, but for silences and replays, which need the operator token."""

import uuid
from dataclasses import asdict
from typing import Any, Final

import orjson
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hifi.clock import now_us
from hifi.errors import Misconfigured, Retryable
from hifi.health import version
from hifi.http.problem import Problem
from hifi_observe.alarms.alarm import KINDS, AlarmSilence
from hifi_observe.observatory import Observatory
from hifi_observe.web import views
from hifi_observe.web.answers import (
    alarms_of,
    dead_of,
    known_minute,
    known_pipe,
    lost_of,
    overview_of,
    pipe_of,
    recent_of,
    slo_p95_us,
    status_of,
)
from hifi_observe.web.console import Console
from hifi_observe.web.openapi import document
from hifi_observe.web.operations import OPERATIONS
from hifi_observe.web.replays import Order, Replays
from hifi_observe.web.request import minute_of, operator, whole

_LIMIT: Final = 10_000


def application(observatory: Observatory) -> Starlette:
    """The ASGI app of API and console."""
    api = Api(observatory)
    routes = [Route(one.path, getattr(api, one.name), methods=[one.method]) for one in OPERATIONS]
    routes.append(Route("/openapi.json", api.openapi))
    return Starlette(routes=[*routes, *Console(observatory).routes()], exception_handlers={Problem: _problem})


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


class Api:
    """The operations."""

    def __init__(self, observatory: Observatory) -> None:
        self._observatory = observatory
        self._store = observatory.store
        self._replays = Replays(observatory.settings, observatory.topics)

    async def openapi(self, _: Request) -> Response:
        """The document of this API."""
        return answer(document(OPERATIONS, version("observe")))

    async def status(self, _: Request) -> Response:
        """See the operation."""
        return answer(status_of(self._observatory))

    async def pipes(self, _: Request) -> Response:
        """See the operation."""
        return answer(overview_of(self._observatory))

    async def pipe(self, request: Request) -> Response:
        """See the operation."""
        return answer(pipe_of(self._observatory, self._name(request)))

    async def minutes(self, request: Request) -> Response:
        """See the operation."""
        name = self._name(request)
        now = now_us() // 60_000_000
        last = minute_of(request.query_params.get("to", str(now)))
        first = (
            minute_of(request.query_params["from"])
            if "from" in request.query_params
            else last - whole(request, "last", 60, 50_000) + 1
        )
        return answer(
            {
                "pipe": name,
                "minutes": views.minutes(self._store, name, first, last),
                "provisional": views.provisional(self._store, name, slo_p95_us(self._observatory, name)),
            }
        )

    async def series(self, request: Request) -> Response:
        """See the operation."""
        now, name = now_us() // 60_000_000, self._name(request)
        first, slo_us = now - whole(request, "last", 60, 50_000), slo_p95_us(self._observatory, name)
        return answer(views.series(self._store, name, first, now, slo_us))

    async def recent(self, request: Request) -> Response:
        """See the operation."""
        return answer(recent_of(self._observatory, self._name(request)))

    async def minute(self, request: Request) -> Response:
        """See the operation."""
        merged = self._merged(request)
        return answer({name: value for name, value in merged.items() if name not in ("lost_ids", "offsets")})

    async def lost(self, request: Request) -> Response:
        """See the operation."""
        return answer(
            await lost_of(
                self._observatory,
                self._merged(request),
                whole(request, "limit", 1000, 100_000),
                resolved=request.query_params.get("resolve") != "no",
            )
        )

    async def dead(self, request: Request) -> Response:
        """See the operation."""
        name = self._name(request)
        wanted = {one: request.query_params.get(one, "") for one in ("service", "reason", "destination")}
        return answer(
            {
                "pipe": name,
                "dead": await dead_of(self._observatory, name, whole(request, "limit", 100, _LIMIT), wanted),
            }
        )

    async def replay(self, request: Request) -> Response:
        """See the operation."""
        operator(request, self._observatory.settings.observe_token)
        name = self._name(request)
        try:
            order = Order.model_validate_json(await request.body())
        except ValidationError as error:
            says = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
            raise Problem(400, f"{says}; see /openapi.json.", title="Not an order") from None
        if self._replays.busy:
            raise Problem(
                409, "Wait until it has answered, then send it again.", title="Another replay is running"
            )
        try:
            return answer(asdict(await self._replays.carry_out(name, order)))
        except Misconfigured as error:
            raise Problem(400, str(error), title="Not an id") from None
        except Retryable as error:
            raise Problem(503, str(error), title="Kafka does not answer") from None

    async def alarms(self, _: Request) -> Response:
        """See the operation."""
        return answer(alarms_of(self._observatory))

    async def silence(self, request: Request) -> Response:
        """See the operation."""
        operator(request, self._observatory.settings.observe_token)
        try:
            body = orjson.loads(await request.body())
            seconds, kind, pipe = float(body["seconds"]), str(body.get("kind", "")), str(body.get("pipe", ""))
            made = AlarmSilence(
                str(uuid.uuid4()),
                str(body["reason"])[:500],
                now_us(),
                now_us() + int(seconds * 1e6),
                kind,
                pipe,
            )
            if seconds <= 0 or (kind and kind not in KINDS):
                raise ValueError(kind)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Problem(
                400,
                "Send JSON with `reason`, `seconds` above 0 and perhaps `kind` and `pipe`; see /openapi.json.",
                title="Not a silence",
            ) from None
        publisher = self._observatory.publisher
        if publisher is None:
            raise Problem(503, "Kafka has not been reached yet.", title="Not connected")
        about = {name: getattr(made, name) for name in made.__dataclass_fields__}
        await publisher.alarm(f"silence/{made.id}", about)
        return answer(about)

    def _name(self, request: Request) -> str:
        return known_pipe(self._observatory, str(request.path_params["pipe"]))

    def _merged(self, request: Request) -> dict[str, Any]:
        return known_minute(self._observatory, self._name(request), str(request.path_params["minute"]))


def answer(body: object) -> Response:
    """A JSON response."""
    return Response(
        orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS),
        media_type="application/json",
        headers={"cache-control": "no-store"},
    )
