"""The JSON API: read-only except for silences and dead-letter replays. Each route needs a principal."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from hifi.control.principals.audit import AuditEntry
from hifi.control.principals.audit_log import AuditLog
from hifi.control.principals.gate import Gate
from hifi.control.principals.oidc.login import OidcLogin
from hifi.control.principals.principal import Principal
from hifi.control.principals.sign_in import SignIn, link_response
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import version
from hifi.runtime.http.openapi import document, json_response
from hifi.runtime.http.problem import Problem
from hifi.runtime.http.trusted_hosts import TrustedHosts, split_hosts
from hifi_observe.settings import ObserveSettings
from hifi_observe.web import views
from hifi_observe.web.alarm_answers import SilenceRequest
from hifi_observe.web.answers import Answers
from hifi_observe.web.console import Console
from hifi_observe.web.event_data import EventDataReaders
from hifi_observe.web.operations import API, NEEDS, OPERATIONS
from hifi_observe.web.replays import REPLAY_S, ReplayRequest, ReplayResult, Replays
from hifi_observe.web.request import minute_of, positive_integer, report_parameters

_Body = TypeVar("_Body", bound=BaseModel)
_EVENT_STREAM: Final = "text/event-stream"
_MOST_DEAD_LETTERS: Final = 10_000
_MOST_LOST: Final = 100_000
_MOST_MINUTES: Final = 50_000


def application(
    settings: ObserveSettings,
    answers: Answers,
    replays: Replays,
    gate: Gate,
    audit: AuditLog,
    login: OidcLogin | None = None,
) -> Starlette:
    """Build the ASGI application of the API and the console."""
    readers = EventDataReaders(gate, audit)
    api = Api(answers, replays, gate, audit, readers)
    console = Console(answers, settings.manage_url, settings.view_url, readers)
    sign_in = SignIn(gate, console.pages, login, settings.observe_url)
    routes = sign_in.operations(OPERATIONS, api, NEEDS)
    routes.append(sign_in.api("/openapi.json", "openapi", api.openapi, NEEDS, "GET"))
    hosts = split_hosts(settings.observe_hosts)
    return Starlette(
        routes=[*routes, *sign_in.routes(), *console.routes(sign_in)],
        exception_handlers={Problem: _problem},
        middleware=[Middleware(TrustedHosts, names=[*hosts, settings.observe_url])],
    )


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


class Api:
    """Handlers of the operations, one method for each; the table OPERATIONS has their paths and parameters.

    Args:
        answers: by subject.
        replays: of dead letters.
        gate: of the service.
        audit: of changes.
        readers: who may read the data of events.
    """

    def __init__(
        self, answers: Answers, replays: Replays, gate: Gate, audit: AuditLog, readers: EventDataReaders
    ) -> None:
        self._readers = readers
        self._answers = answers
        self._replays = replays
        self._gate = gate
        self._audit = audit

    async def openapi(self, _: Request, __: Principal) -> Response:
        """GET /openapi.json: the OpenAPI document of this API."""
        return json_response(document(OPERATIONS, version("observe"), API))

    async def status(self, _: Request, __: Principal) -> Response:
        """GET status: what this instance observes and how far behind it is."""
        return json_response(self._answers.status.status())

    async def verdicts(self, _: Request, principal: Principal) -> Response:
        """GET verdicts: whether the stream, each service and each pipe is stable."""
        return json_response(self._answers.control.verdicts(principal.sees))

    async def control(self, _: Request, principal: Principal) -> Response:
        """GET control: verdicts, rollouts and actions."""
        return json_response(self._answers.control.control(principal.sees))

    async def pipes(self, _: Request, principal: Principal) -> Response:
        """GET pipes: all pipes with their totals and the verdict."""
        return json_response(self._answers.pipes.overview(principal.sees))

    async def pipe(self, request: Request, _: Principal) -> Response:
        """GET a pipe: its current state."""
        return json_response(self._answers.pipes.pipe(self._pipe_name(request)))

    async def minutes(self, request: Request, _: Principal) -> Response:
        """GET minutes: those of a pipe, closed and provisional."""
        name, parameters = self._pipe_name(request), request.query_params
        last_minute = minute_of(parameters.get("to", str(now_us() // 60_000_000)))
        first_minute = (
            minute_of(parameters["from"])
            if "from" in parameters
            else last_minute - positive_integer(request, "last", 60, _MOST_MINUTES) + 1
        )
        whole_lags = parameters.get("lags") == "whole"
        return json_response(
            self._answers.minutes.minutes(name, first_minute, last_minute, whole_lags=whole_lags)
        )

    async def colours(self, request: Request, _: Principal) -> Response:
        """GET the minutes of a pipe over both colours."""
        name, minute_count = self._pipe_name(request), positive_integer(request, "last", 60, 3000)
        return json_response(await self._answers.colours.minutes(name, minute_count))

    async def history(self, request: Request, _: Principal) -> Response:
        """GET what this observe keeps of both colours, for the observe of the other."""
        name, parameters = self._pipe_name(request), request.query_params
        answers = self._answers.colours
        return json_response(answers.history(name, parameters.get("from", ""), parameters.get("to", "")))

    async def series(self, request: Request, _: Principal) -> Response:
        """GET series: the minutes of a pipe as columns."""
        name, minute_count = self._pipe_name(request), positive_integer(request, "last", 60, _MOST_MINUTES)
        return json_response(self._answers.minutes.series(name, minute_count))

    async def recent(self, request: Request, _: Principal) -> Response:
        """GET recent: the last five minutes of a pipe, one point per second."""
        return json_response(self._answers.pipes.recent(self._pipe_name(request)))

    async def skew(self, request: Request, _: Principal) -> Response:
        """GET skew: the watched fields of a pipe."""
        return json_response(self._answers.pipes.watched_fields(self._pipe_name(request)))

    async def minute(self, request: Request, _: Principal) -> Response:
        """GET a closed minute, without ids and offsets."""
        return json_response(views.shown(self._merged(request)))

    async def lost(self, request: Request, _: Principal) -> Response:
        """GET the lost events of a minute."""
        merged, limit = self._merged(request), positive_integer(request, "limit", 1000, _MOST_LOST)
        resolved = request.query_params.get("resolve") != "no"
        return json_response(await self._answers.records.lost(merged, limit, resolved=resolved))

    async def event(self, request: Request, _: Principal) -> Response:
        """GET what became of an event of a minute, also while the minute is open."""
        ce_id = request.query_params.get("id", "")
        if not ce_id:
            raise Problem(400, "Set `id` to the ce_id of the event.", title="Invalid id")
        minute = self._answers.minutes.so_far(self._pipe_name(request), str(request.path_params["minute"]))
        return json_response(await self._answers.records.event(minute, ce_id))

    async def dead(self, request: Request, principal: Principal) -> Response:
        """GET the newest dead letters of a pipe."""
        pipe, limit = self._pipe_name(request), positive_integer(request, "limit", 100, _MOST_DEAD_LETTERS)
        conditions = {
            name: request.query_params.get(name, "") for name in ("service", "reason", "destination")
        }
        dead_letters = await self._answers.records.dead(pipe, limit, conditions)
        dead_letters = await self._readers.shown(principal, pipe, dead_letters)
        return json_response({"pipe": pipe, "dead": dead_letters})

    async def replay(self, request: Request, principal: Principal) -> Response:
        """POST a dead-letter replay; 409 while another one runs."""
        name = self._pipe_name(request)
        replay = await _parsed(request, ReplayRequest, "Invalid replay request")
        if self._replays.busy:
            raise Problem(
                409,
                "Wait until that replay is complete, then send the request again.",
                title="Another replay is running",
            )

        async def run() -> ReplayResult:
            """The replay, whose bad ids are a problem of the request."""
            try:
                return await self._replays.run(name, replay)
            except Misconfigured as error:
                raise Problem(400, str(error), title="Invalid dead letter id") from None

        entry = AuditEntry(
            principal.name,
            "replay dead letters",
            f"pipe/{name}",
            now_us(),
            replay.model_dump(exclude_defaults=True),
        )
        return json_response(asdict(await self._audit.changed(entry, run, asdict, REPLAY_S)))

    async def watermarks(self, request: Request, principal: Principal) -> Response:
        """GET the watermarks of all pipes."""
        return await self._watermarks(request, principal.sees)

    async def pipe_watermarks(self, request: Request, _: Principal) -> Response:
        """GET the watermarks of a pipe."""
        name = self._pipe_name(request)
        return await self._watermarks(request, lambda pipe: pipe == name)

    async def _watermarks(self, request: Request, may_see: Callable[[str], bool]) -> Response:
        answers = self._answers.watermarks
        colour = request.query_params.get("colour")
        if colour not in (None, "own"):
            raise Problem(400, f"`colour` is {colour!r}; it may be `own` only", title="Invalid parameter")
        if _EVENT_STREAM in request.headers.get("accept", ""):
            headers = {"cache-control": "no-store"}
            return StreamingResponse(answers.stream(may_see), media_type=_EVENT_STREAM, headers=headers)
        if colour:
            return json_response(answers.of_colour(may_see))
        return json_response(await answers.watermarks(may_see))

    async def report(self, request: Request, principal: Principal) -> Response:
        """GET the signed report of a month."""
        reports = self._answers.reports
        answer = reports.report(*report_parameters(request), principal.sees)
        headers = {"cache-control": "no-store"}
        return Response(reports.signed(answer), media_type="application/json", headers=headers)

    async def alarms(self, _: Request, principal: Principal) -> Response:
        """GET active alarms, past alarms and silences."""
        return json_response(self._answers.alarms.alarms(principal))

    async def silence(self, request: Request, principal: Principal) -> Response:
        """POST a silence for alarms of a kind, of a pipe, or all."""
        silence = await _parsed(request, SilenceRequest, "Invalid silence")
        if not principal.sees_all and not (silence.pipe and principal.sees(silence.pipe)):
            raise Problem(403, f"{principal.name} may silence alarms of {', '.join(principal.pipes)} only.")
        subject = f"alarms/{silence.kind or 'all'}/{silence.pipe or 'all'}"
        entry = AuditEntry(principal.name, "silence alarms", subject, now_us())
        silenced = await self._audit.changed(entry, lambda: self._answers.alarms.silence(silence), asdict)
        return json_response(silenced)

    async def usage(self, request: Request, principal: Principal) -> Response:
        """GET usage by pipe, write key and day."""
        parameters = request.query_params
        return json_response(
            self._answers.usage.rows(
                parameters.get("from"), parameters.get("to"), parameters.get("pipe"), principal.sees
            )
        )

    async def link(self, request: Request, principal: Principal) -> Response:
        """POST: make a link that opens the console signed in as the caller."""
        return link_response(self._gate, request, principal)

    async def me(self, _: Request, principal: Principal) -> Response:
        """GET the principal of the request."""
        return json_response(principal.json())

    def _pipe_name(self, request: Request) -> str:
        return self._answers.pipes.require(str(request.path_params["pipe"]))

    def _merged(self, request: Request) -> Mapping[str, Any]:
        return self._answers.minutes.merged(self._pipe_name(request), str(request.path_params["minute"]))


async def _parsed(request: Request, kind: type[_Body], title: str) -> _Body:
    """The body of a request.

    Raises:
        Problem: 400, it is not of this kind.
    """
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        invalid_fields = "; ".join(
            f"{'.'.join(map(str, field['loc'])) or 'the body'}: {field['msg'].removeprefix('Value error, ')}"
            for field in error.errors()
        )
        raise Problem(400, f"{invalid_fields}; see /openapi.json.", title=title) from None
