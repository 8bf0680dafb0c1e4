"""The JSON API: read-only except for silences and dead-letter replays, which need the operator token."""

import uuid
from dataclasses import asdict
from typing import Any, Final

import orjson
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hifi.runtime.clock import now_us
from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.health import version
from hifi.runtime.http.openapi import document, json_response
from hifi.runtime.http.problem import Problem
from hifi_observe.alarms.alarm import KINDS, AlarmSilence
from hifi_observe.observatory import Observatory
from hifi_observe.web import views
from hifi_observe.web.answers import (
    alarms_of,
    colours_of,
    control_of,
    dead_of,
    known_minute,
    known_pipe,
    lost_of,
    overview_of,
    pipe_of,
    recent_of,
    skew_of,
    slo_p95_us,
    status_of,
)
from hifi_observe.web.console import Console
from hifi_observe.web.operations import API, OPERATIONS
from hifi_observe.web.replays import ReplayRequest, Replays
from hifi_observe.web.request import minute_of, positive_integer, require_operator

_LIMIT: Final = 10_000


def application(observatory: Observatory) -> Starlette:
    """Build the ASGI application of the API and the console."""
    api = Api(observatory)
    routes = [
        Route(operation.path, getattr(api, operation.name), methods=[operation.method])
        for operation in OPERATIONS
    ]
    routes.append(Route("/openapi.json", api.openapi))
    return Starlette(routes=[*routes, *Console(observatory).routes()], exception_handlers={Problem: _problem})


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


class Api:
    """Handlers of the operations, one method for each; the table OPERATIONS has their paths and parameters."""

    def __init__(self, observatory: Observatory) -> None:
        self._observatory = observatory
        self._store = observatory.store
        self._replays = Replays(observatory.settings, observatory.topics, observatory.registry)

    async def openapi(self, _: Request) -> Response:
        """GET /openapi.json: the OpenAPI document of this API."""
        return json_response(document(OPERATIONS, version("observe"), API))

    async def status(self, _: Request) -> Response:
        """GET status: what this instance observes and how far behind it is."""
        return json_response(status_of(self._observatory))

    async def verdicts(self, _: Request) -> Response:
        """GET verdicts: whether the stream, each service and each pipe is stable."""
        return json_response({"verdicts": [one.json() for one in self._observatory.verdicts()]})

    async def control(self, _: Request) -> Response:
        """GET control: verdicts, rollouts and steps."""
        return json_response(control_of(self._observatory))

    async def pipes(self, _: Request) -> Response:
        """GET pipes: all pipes with their totals and the verdict."""
        return json_response(overview_of(self._observatory))

    async def pipe(self, request: Request) -> Response:
        """GET a pipe: its current state."""
        return json_response(pipe_of(self._observatory, self._name(request)))

    async def minutes(self, request: Request) -> Response:
        """GET minutes: those of a pipe, closed and provisional."""
        name = self._name(request)
        now = now_us() // 60_000_000
        last = minute_of(request.query_params.get("to", str(now)))
        first = (
            minute_of(request.query_params["from"])
            if "from" in request.query_params
            else last - positive_integer(request, "last", 60, 50_000) + 1
        )
        whole_lags = request.query_params.get("lags") == "whole"
        return json_response(
            {
                "pipe": name,
                "closed_minute": self._store.closed_minute(self._observatory.partitions),
                "minutes": views.minutes(self._store, name, first, last, whole_lags=whole_lags),
                "fronts": views.fronts(self._store, first, last),
                "provisional": views.provisional(self._store, name, slo_p95_us(self._observatory, name)),
            }
        )

    async def colours(self, request: Request) -> Response:
        """GET the minutes of a pipe over both colours."""
        name, last = self._name(request), positive_integer(request, "last", 60, 3000)
        return json_response(await colours_of(self._observatory, name, last))

    async def series(self, request: Request) -> Response:
        """GET series: the minutes of a pipe as columns."""
        now, name = now_us() // 60_000_000, self._name(request)
        first, slo_us = (
            now - positive_integer(request, "last", 60, 50_000),
            slo_p95_us(self._observatory, name),
        )
        return json_response(views.series(self._store, name, first, now, slo_us))

    async def recent(self, request: Request) -> Response:
        """GET recent: the last five minutes of a pipe, one point per second."""
        return json_response(recent_of(self._observatory, self._name(request)))

    async def skew(self, request: Request) -> Response:
        """GET skew: the watched fields of a pipe."""
        return json_response(skew_of(self._observatory, self._name(request)))

    async def minute(self, request: Request) -> Response:
        """GET a closed minute, without ids and offsets."""
        return json_response(views.shown(self._merged(request)))

    async def lost(self, request: Request) -> Response:
        """GET the lost events of a minute."""
        return json_response(
            await lost_of(
                self._observatory,
                self._merged(request),
                positive_integer(request, "limit", 1000, 100_000),
                resolved=request.query_params.get("resolve") != "no",
            )
        )

    async def dead(self, request: Request) -> Response:
        """GET the newest dead letters of a pipe."""
        pipe = self._name(request)
        wanted = {name: request.query_params.get(name, "") for name in ("service", "reason", "destination")}
        return json_response(
            {
                "pipe": pipe,
                "dead": await dead_of(
                    self._observatory, pipe, positive_integer(request, "limit", 100, _LIMIT), wanted
                ),
            }
        )

    async def replay(self, request: Request) -> Response:
        """POST a dead-letter replay; 409 while another one runs."""
        require_operator(request, self._observatory.settings.observe_token)
        name = self._name(request)
        try:
            replay = ReplayRequest.model_validate_json(await request.body())
        except ValidationError as error:
            invalid = "; ".join(
                f"{'.'.join(map(str, field['loc']))}: {field['msg']}" for field in error.errors()
            )
            raise Problem(400, f"{invalid}; see /openapi.json.", title="Invalid replay request") from None
        if self._replays.busy:
            raise Problem(
                409,
                "Wait until that replay is complete, then send the request again.",
                title="Another replay is running",
            )
        try:
            return json_response(asdict(await self._replays.run(name, replay)))
        except Misconfigured as error:
            raise Problem(400, str(error), title="Invalid dead letter id") from None
        except Retryable as error:
            raise Problem(503, str(error), title="Kafka does not answer") from None

    async def alarms(self, _: Request) -> Response:
        """GET active alarms, past alarms and silences."""
        return json_response(alarms_of(self._observatory))

    async def silence(self, request: Request) -> Response:
        """POST a silence for alarms of a kind, of a pipe, or all."""
        require_operator(request, self._observatory.settings.observe_token)
        try:
            body = orjson.loads(await request.body())
            seconds, kind, pipe = float(body["seconds"]), str(body.get("kind", "")), str(body.get("pipe", ""))
            silence = AlarmSilence(
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
                "Send JSON with `reason`, `seconds` above 0 and, optionally, `kind` and `pipe`; see /openapi.json.",
                title="Invalid silence",
            ) from None
        publisher = self._observatory.publisher
        if publisher is None:
            raise Problem(503, "observe has not connected to Kafka yet; try again.", title="Not connected")
        fields = {name: getattr(silence, name) for name in silence.__dataclass_fields__}
        await publisher.alarm(f"silence/{silence.id}", fields)
        return json_response(fields)

    def _name(self, request: Request) -> str:
        return known_pipe(self._observatory, str(request.path_params["pipe"]))

    def _merged(self, request: Request) -> dict[str, Any]:
        return known_minute(self._observatory, self._name(request), str(request.path_params["minute"]))
