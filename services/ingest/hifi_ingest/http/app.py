"""The ASGI app of ingest. Requests with events are handled directly, the other pages by Starlette."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from hifi.pipe.revision import PipeRevision
from hifi.runtime import log, metrics
from hifi.runtime.clock import MICROSECONDS, monotonic_s, now_us
from hifi.runtime.health import Health
from hifi.runtime.http.problem import Problem, ResponseParts, retry_later
from hifi_ingest.admission.quotas import QuotaExceeded, QuotaLimit
from hifi_ingest.bodies import Accepted, RefusalMembers
from hifi_ingest.decode.masking import mask_events
from hifi_ingest.decode.request import EventRequest, decode_request
from hifi_ingest.decode.source_mask import SourceMasker
from hifi_ingest.http.body_limits import ClientDisconnected
from hifi_ingest.http.context import IngestContext
from hifi_ingest.http.write_keys import Grant, PipesByKey, key_from_header

EVENTS: Final = "/v1/events"
_PIPES: Final = "/v1/pipes/"
_PIPE_EVENTS: Final = "/events"
_CONDITION: Final = "accepting events"
_CHALLENGE: Final = ("www-authenticate", 'Bearer realm="hifi", Basic realm="hifi", charset="UTF-8"')
_PREFLIGHT_S: Final = 600
_HEADER_NAMES: Final = re.compile(rb"[A-Za-z0-9, -]{0,1000}")
_PAUSED_RETRY_S: Final = 10
"""Time after which the sender of a paused pipe should try again, seconds."""
_ADMITTED: Final = "admitted"
"""Key of `_Admitted` in the state of a request."""
_PAGE_ERRORS: Final = {
    404: "there is no such path: send events to /v1/events or /v1/pipes/{pipe}/events; /openapi.json describes all",
    405: "this path is read by GET; send events to /v1/events or /v1/pipes/{pipe}/events by POST",
}
_JSON: Final = (b"content-type", b"application/json")

logger = log.get(__name__)
_requests: Final = lru_cache(maxsize=None)(lambda status: metrics.REQUESTS.labels(str(status)))


class PipePaused(Problem):
    """503 with Retry-After: the pipe takes no new events now. The sender keeps the event and tries again."""

    def __init__(self, pipe: str) -> None:
        members: RefusalMembers = {"paused": True}
        super().__init__(
            503,
            f"the pipe {pipe} is paused and takes no events until somebody resumes it; no event was accepted, send"
            " the request again later",
            [("retry-after", str(_PAUSED_RETRY_S))],
            members,
        )
        self.pipe = pipe


class PipeHeld(Problem):
    """503 with Retry-After: the declaration of the pipe cannot be read. The sender keeps the event and tries again.

    Attributes:
        pipe: the name; None: it is not known which pipe the write key is for.
    """

    def __init__(self, pipe: str | None) -> None:
        subject = (
            "the declaration of a pipe cannot be read here, so that it is unknown whether it has this write key"
            if pipe is None
            else f"the declaration of the pipe {pipe} cannot be read here"
        )
        super().__init__(
            503,
            f"{subject}; no event was accepted, send the request again later. The operator of hifi finds the reason on"
            " /readyz of ingest's admin port",
            [("retry-after", str(_PAUSED_RETRY_S))],
        )
        self.pipe = pipe


class _Admitted(NamedTuple):
    """A request whose body is read next."""

    context: IngestContext
    headers: Mapping[bytes, bytes]
    pipe: PipeRevision
    masker: SourceMasker | None
    limits: Sequence[QuotaLimit]
    key: str
    """Id of the write key."""

    @property
    def write_key(self) -> bytes:
        """The key with which the request was admitted."""
        return key_from_header(self.headers[b"authorization"]) or b""


class App:
    """Accepts events after `open`; until then it answers 503."""

    def __init__(self, health: Health) -> None:
        self.context: IngestContext | None = None
        self._health = health
        health.block(_CONDITION, "ingest is starting and does not accept events yet")
        self._pages = Starlette(
            routes=[*health.public_routes(), Route("/openapi.json", _openapi)],
            exception_handlers={HTTPException: self._http_problem},
        )

    def open(self, context: IngestContext) -> None:
        """Start to accept events."""
        self.context = context
        self._health.unblock(_CONDITION)

    def count(self, status: int) -> None:
        """Count a response in the metrics and in the next report of acknowledged events."""
        _requests(status).inc()
        if self.context is not None:
            self.context.reporter.answers[status] += 1

    def refuse(self, scope: Scope, method: bytes, target: bytes) -> ResponseParts | None:
        """The answer, which is counted, to events that are refused before their body is read; None: call the app.

        It is a `hifi.runtime.http.limits.Gate`.
        """
        if method != b"POST" or b"%" in target:
            return None
        is_events_path, pipe_name = _pipe_name(target.partition(b"?")[0].decode("latin-1"))
        if not is_events_path:
            return None
        try:
            admitted = self._admit(scope, pipe_name)
        except Problem as problem:
            return self._with_cors_headers(scope, self._refusal(problem))
        except Exception:  # noqa: BLE001 - the app meets it again and answers 500
            return None
        # Many requests may pass here before the app is called for the first of them, so it counts from here on.
        admitted.context.admission.requests.begin(admitted.pipe.pipe.pipe)
        scope["state"][_ADMITTED] = admitted
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        is_events_path, pipe_name = _pipe_name(scope["path"])
        if not is_events_path:
            await self._pages(scope, receive, send)
            return
        if scope["method"] == "OPTIONS" and (preflight := self._preflight(scope)) is not None:
            await _send(send, preflight)
            return
        try:
            response = await self._handle_events(scope, receive, pipe_name)
            self.count(response[0])
        except ClientDisconnected:
            return
        except Problem as problem:
            response = self._refusal(problem)
        except Exception:
            logger.exception("request-failed")
            response = Problem(500, "ingest failed on this request; see its log for the cause").parts()
            self.count(500)
        response = self._with_cors_headers(scope, response)
        await _send(send, response, is_head=scope["method"] == "HEAD")

    def _admit(self, scope: Scope, pipe_name: str | None) -> "_Admitted":
        """Check everything but the body of a request.

        Raises:
            Problem: the request is refused.
        """
        context = self.context
        if context is None:
            raise retry_later("ingest is not ready yet; /readyz shows what it is waiting for")
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        pipe, grant = _authorized_pipe(context, headers, pipe_name)
        name, quotas = pipe.pipe.pipe, context.quotas
        if context.registry.held(name) is not None:
            raise PipeHeld(name)
        if pipe.paused:
            raise PipePaused(name)
        context.acceptor.check()
        masker = context.masks.of(pipe)
        now_s = monotonic_s()
        context.admission.check(name, now_s)
        cap_per_s = None if pipe.cap is None else pipe.cap.events_per_s
        limits = quotas.of(name, pipe.pipe.source.quota, grant.quota, now_s, cap_per_s)
        if limits:
            quotas.check(name, limits, now_s)
        return _Admitted(context, headers, pipe, masker, limits, grant.key)

    async def _handle_events(self, scope: Scope, receive: Receive, pipe_name: str | None) -> ResponseParts:
        if scope["method"] != "POST":
            raise Problem(405, "send events by POST", [("allow", "POST")])
        gate_admitted = scope.get("state", {}).get(_ADMITTED)
        admitted = gate_admitted or self._admit(scope, pipe_name)
        context, headers, pipe, masker, limits, key_id = admitted
        name, quotas, admission = pipe.pipe.pipe, context.quotas, context.admission
        if gate_admitted is not None:
            admission.requests.end(name, None)  # it does not count while its body is received
        reader = context.body_reader()
        try:
            body = await reader.read(headers, receive)
            admission.requests.begin(name)
            in_us, duration_s = now_us(), None
            try:
                body = await reader.decompress(headers, body)
                accepted_us = now_us()
                request = EventRequest(
                    scope["headers"], body, accepted_us, reader.reserve, admitted.write_key
                )
                events = await decode_request(
                    request,
                    context.formats(pipe),
                    context.decode_limits,
                    allow_plain_json=pipe_name is not None,
                )
                if limits:
                    quotas.take(name, limits, len(events), len(body), monotonic_s())
                if masker is not None:
                    events = await mask_events(events, masker, request.write_key)
                await context.acceptor.accept(pipe, events, in_us, accepted_us, key_id)
                duration_s = (now_us() - in_us) / MICROSECONDS
            finally:
                admission.requests.end(name, duration_s)
        finally:
            reader.release()
        metrics.INGEST_SECONDS.observe(duration_s)
        admission.accepted(name, len(events))
        context.accepted_events(name).inc(len(events))
        return _accepted([event.id for event in events])

    def _preflight(self, scope: Scope) -> ResponseParts | None:
        """The answer to a browser that asks whether a page may send (CORS); None: the page may not."""
        status, body, headers = self._with_cors_headers(scope, (200, b"", []))
        if not headers:
            return None
        requested_headers = dict(scope["headers"]).get(b"access-control-request-headers", b"")
        allowed_headers = requested_headers if _HEADER_NAMES.fullmatch(requested_headers) else b""
        headers += [
            (b"access-control-allow-methods", b"POST"),
            (b"access-control-allow-headers", allowed_headers),
            (b"access-control-max-age", b"%d" % _PREFLIGHT_S),
        ]
        return status, body, headers

    def _with_cors_headers(self, scope: Scope, response: ResponseParts) -> ResponseParts:
        """The response, with headers that let a page read it if a write key is for its origin (CORS)."""
        origin = dict(scope["headers"]).get(b"origin")
        if origin is None or self.context is None or not self.context.keys.allows_origin(origin):
            return response
        status, body, headers = response
        return status, body, [*headers, (b"access-control-allow-origin", origin), (b"vary", b"origin")]

    def _refusal(self, problem: Problem) -> ResponseParts:
        """The response of a refused request, which is counted."""
        if isinstance(problem, PipePaused | PipeHeld):
            self._count_paused(problem.pipe)
        else:
            if isinstance(problem, QuotaExceeded):
                self._count_refused(problem)
            self.count(problem.status)
        return problem.parts()

    def _count_refused(self, problem: QuotaExceeded) -> None:
        metrics.QUOTA_REFUSED.labels(problem.pipe, problem.limit.subject, problem.limit.unit).inc()
        if self.context is not None:
            self.context.reporter.refused[problem.pipe] += 1

    def _count_paused(self, pipe: str | None) -> None:
        """Count a refusal of a pipe that is paused or held, which is no failure of ingest for other pipes."""
        _requests(503).inc()
        if pipe is None:
            return
        metrics.PAUSED.labels(pipe).inc()
        if self.context is not None:
            self.context.reporter.paused[pipe] += 1

    async def _http_problem(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        self.count(error.status_code)
        headers = list((error.headers or {}).items())
        return Problem(
            error.status_code, _PAGE_ERRORS.get(error.status_code, error.detail), headers
        ).response()


def _pipe_name(path: str) -> tuple[bool, str | None]:
    """Whether a path takes events, and the pipe that it names."""
    if path.startswith(_PIPES) and path.endswith(_PIPE_EVENTS):
        return True, path[len(_PIPES) : -len(_PIPE_EVENTS)]
    return path == EVENTS, None


def _authorized_pipe(
    context: IngestContext, headers: Mapping[bytes, bytes], pipe_name: str | None
) -> tuple[PipeRevision, Grant]:
    """The pipe that the request writes to, and the permissions of its key there.

    The response never reveals pipes that the key may not write to: without a valid key it is always 401, and with one
    any other pipe is 404, whether it exists or not. While a pipe is held whose keys may not be known, 503 takes the
    place of these where the key could be one of it, so that its senders keep their events.

    Raises:
        Problem: 401, 403, 404 or 503.
    """
    authorization = headers.get(b"authorization")
    grants = context.keys.pipes(authorization)
    existing_pipes = [pipe for pipe in (context.registry.get(name) for name in grants) if pipe is not None]
    pipes = [pipe for pipe in existing_pipes if pipe.pipe.source.kind == "http"]
    if context.registry.holds_pipes and authorization is not None and key_from_header(authorization):
        _require_known_keys(context.registry.all_held(), grants, pipes, pipe_name)
    if not pipes:
        raise Problem(401, "send a valid write key as Bearer token or as user name of Basic", [_CHALLENGE])
    if pipe_name is not None:
        pipes = [pipe for pipe in pipes if pipe.pipe.pipe == pipe_name]
        if not pipes:
            raise Problem(404, "this write key has no pipe of that name")
    if len(pipes) > 1:
        raise Problem(404, "this write key has several pipes: send to /v1/pipes/{pipe}/events")
    grant = grants[pipes[0].pipe.pipe]
    if grant.origins and headers.get(b"origin", b"").decode("latin-1") not in grant.origins:
        raise Problem(403, "this write key is for pages of other origins; send with a key for programs")
    return pipes[0], grant


def _require_known_keys(
    held_pipes: Mapping[str, str], grants: PipesByKey, pipes: Sequence[PipeRevision], pipe_name: str | None
) -> None:
    """Refuse a key that may be one of a pipe that is held.

    Args:
        held_pipes: the pipes that are held.
        grants: pipes that have the key, as far as is known.
        pipes: the pipes of `grants` that can be written to.
        pipe_name: that the request names.

    Raises:
        Problem: 503 with Retry-After.
    """
    if pipe_name is not None:
        if pipe_name in held_pipes and all(pipe.pipe.pipe != pipe_name for pipe in pipes):
            raise PipeHeld(pipe_name)
    elif held_pipes and not pipes:
        raise PipeHeld(next((name for name in grants if name in held_pipes), None))


def _accepted(ids: Sequence[bytes]) -> ResponseParts:
    """202: Kafka has acknowledged every event of the request."""
    body: Accepted = {"accepted": len(ids), "ids": [event_id.decode() for event_id in ids]}
    return 202, orjson.dumps(body), [_JSON]


async def _send(send: Send, response: ResponseParts, *, is_head: bool = False) -> None:
    status, body, headers = response
    length_header = (b"content-length", b"%d" % len(body))
    start_message: Message = {
        "type": "http.response.start",
        "status": status,
        "headers": [*headers, length_header],
    }
    await send(start_message)
    await send({"type": "http.response.body", "body": b"" if is_head else body})


async def _openapi(_: Request) -> Response:
    from hifi_ingest.http.openapi import DOCUMENT

    return Response(DOCUMENT, media_type="application/json")
