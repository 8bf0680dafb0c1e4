"""The JSON API: read-only, but for silences, which need the operator token."""

import hmac
import uuid
from typing import Any, Final

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hifi.clock import now_us
from hifi.health import version
from hifi_observe import problem, views
from hifi_observe.alarm import KINDS, Silence
from hifi_observe.answers import (
    alarms_of,
    dead_of,
    known_minute,
    known_pipe,
    lost_of,
    pipe_of,
    pipes_of,
    status_of,
)
from hifi_observe.console import Console
from hifi_observe.observatory import Observatory
from hifi_observe.openapi import Operation, document
from hifi_observe.problem import Problem
from hifi_observe.request import minute_of, whole

_SILENCE: Final = {
    "type": "object",
    "required": ["reason", "seconds"],
    "properties": {
        "reason": {"type": "string"},
        "seconds": {"type": "number", "exclusiveMinimum": 0},
        "kind": {"enum": ["", *KINDS]},
        "pipe": {"type": "string"},
    },
}
OPERATIONS: Final = (
    Operation("GET", "/api/v1/status", "status", "What this instance observes and how old its knowledge is."),
    Operation(
        "GET",
        "/api/v1/pipes",
        "pipes",
        "All pipes: state, rates, p95, loss, nines, what retries and is dead.",
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}",
        "pipe",
        "One pipe now: rates, lags, hops, destinations, availability.",
        statuses=(404,),
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/minutes",
        "minutes",
        "Closed minutes of a pipe, oldest first.",
        {"last": "How many minutes before now; default 60.", "from": "First minute.", "to": "Last minute."},
        (400, 404),
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/series",
        "series",
        "Closed minutes of a pipe as columns, for charts.",
        {"last": "How many minutes before now; default 60."},
        (400, 404),
    ),
    Operation(
        "GET", "/api/v1/pipes/{pipe}/minutes/{minute}", "minute", "One closed minute.", statuses=(400, 404)
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/minutes/{minute}/lost",
        "lost",
        "The lost events of a minute, one by one, with their `ce_id` where it can be found.",
        {"limit": "How many at most; default 1000.", "resolve": "`no`: do not look the `ce_id` up."},
        (400, 404, 503),
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/dead",
        "dead",
        "The newest dead letters of a pipe.",
        {
            "limit": "How many at most; default 100.",
            "node": "Only of this node.",
            "reason": "Only with this reason.",
            "destination": "Only for this one.",
        },
        (400, 404, 503),
    ),
    Operation("GET", "/api/v1/alarms", "alarms", "Active alarms, the newest of the past, and silences."),
    Operation(
        "POST",
        "/api/v1/silences",
        "silence",
        "Keep alarms quiet during a planned change.",
        statuses=(400, 401),
        operator=True,
        body=_SILENCE,
    ),
)
_LIMIT: Final = 10_000


def application(observatory: Observatory) -> Starlette:
    """The ASGI app of API and console."""
    api = Api(observatory)
    routes = [Route(one.path, getattr(api, one.name), methods=[one.method]) for one in OPERATIONS]
    routes.append(Route("/openapi.json", api.openapi))
    return Starlette(
        routes=[*routes, *Console(observatory).routes()], exception_handlers={Problem: problem.answer}
    )


class Api:
    """The operations."""

    def __init__(self, observatory: Observatory) -> None:
        self._observatory = observatory
        self._store = observatory.store

    async def openapi(self, _: Request) -> Response:
        """The document of this API."""
        return answer(document(OPERATIONS, version("observe")))

    async def status(self, _: Request) -> Response:
        """See the operation."""
        return answer(status_of(self._observatory))

    async def pipes(self, _: Request) -> Response:
        """See the operation."""
        return answer({"pipes": pipes_of(self._observatory), "status": status_of(self._observatory)})

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
        return answer({"pipe": name, "minutes": views.minutes(self._store, name, first, last)})

    async def series(self, request: Request) -> Response:
        """See the operation."""
        now = now_us() // 60_000_000
        return answer(
            views.series(self._store, self._name(request), now - whole(request, "last", 60, 50_000), now)
        )

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
        wanted = {one: request.query_params.get(one, "") for one in ("node", "reason", "destination")}
        return answer(
            {
                "pipe": name,
                "dead": await dead_of(self._observatory, name, whole(request, "limit", 100, _LIMIT), wanted),
            }
        )

    async def alarms(self, _: Request) -> Response:
        """See the operation."""
        return answer(alarms_of(self._observatory))

    async def silence(self, request: Request) -> Response:
        """See the operation."""
        token = self._observatory.settings.observe_token
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not token or not hmac.compare_digest(given.encode(), token.encode()):
            raise Problem(401, "Not an operator", "Send the operator token (HIFI_OBSERVE_TOKEN) as Bearer.")
        try:
            body = orjson.loads(await request.body())
            seconds, kind, pipe = float(body["seconds"]), str(body.get("kind", "")), str(body.get("pipe", ""))
            made = Silence(
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
                "Not a silence",
                "Send JSON with `reason`, `seconds` above 0 and perhaps `kind` and `pipe`; see /openapi.json.",
            ) from None
        publisher = self._observatory.publisher
        if publisher is None:
            raise Problem(503, "Not connected", "Kafka has not been reached yet.")
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
