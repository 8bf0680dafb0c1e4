"""The ASGI app: requests with events go straight to work, everything else through Starlette."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from hifi import log, metrics
from hifi.clock import MICROSECONDS, now_us
from hifi.health import Health
from hifi.pipe.registry import PipeVersion
from hifi_ingest.decode.request import Sent, events
from hifi_ingest.http.answers import Answer, Problem, accepted, retry_later
from hifi_ingest.http.body_limits import Gone
from hifi_ingest.http.context import Taker

EVENTS: Final = "/v1/events"
_PIPES: Final = "/v1/pipes/"
_PIPE_EVENTS: Final = "/events"
_TAKING: Final = "taking events"
_CHALLENGE: Final = ("www-authenticate", 'Bearer realm="hifi", Basic realm="hifi", charset="UTF-8"')

logger = log.get(__name__)
_requests: Final = lru_cache(maxsize=None)(lambda status: metrics.REQUESTS.labels(str(status)))


class App:
    """Takes events once it is open; until then it asks to come again."""

    def __init__(self, health: Health) -> None:
        self.taker: Taker | None = None
        self._health = health
        health.block(_TAKING, "events are not taken yet")
        self._pages = Starlette(
            routes=[*health.routes(), Route("/openapi.json", _openapi)],
            exception_handlers={HTTPException: self._http_problem},
        )

    def open(self, taker: Taker) -> None:
        """From now on events are taken."""
        self.taker = taker
        self._health.unblock(_TAKING)

    def count(self, status: int) -> None:
        """One more request was answered."""
        _requests(status).inc()
        if self.taker is not None:
            self.taker.tally.answers[status] += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"]
        if path == EVENTS:
            pipe = None
        elif path.startswith(_PIPES) and path.endswith(_PIPE_EVENTS):
            pipe = path[len(_PIPES) : -len(_PIPE_EVENTS)]
        else:
            await self._pages(scope, receive, send)
            return
        try:
            answer = await self._take(scope, receive, pipe)
        except Gone:
            return
        except Problem as problem:
            answer = problem.answer()
        except Exception:
            logger.exception("request-failed")
            answer = Problem(500, "ingest failed on this request; the log says why").answer()
        self.count(answer[0])
        await _send(send, answer, head=scope["method"] == "HEAD")

    async def _take(self, scope: Scope, receive: Receive, pipe: str | None) -> Answer:
        if scope["method"] != "POST":
            raise Problem(405, "events come in by POST", [("allow", "POST")])
        taker = self.taker
        if taker is None:
            raise retry_later("ingest is not ready yet; /readyz says what it waits for")
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        known = _authorized(taker, headers, pipe)
        taker.acceptor.check()
        body = taker.body()
        try:
            content = await body.read(headers, receive)
            in_us = now_us()
            content = await body.expand(headers, content)
            accepted_us = now_us()
            sent = Sent(scope["headers"], content, accepted_us)
            found = await events(sent, taker.taking(known), taker.bounds, plain_too=pipe is not None)
            taker.rates.take(known.pipe.pipe, len(found))
            await taker.acceptor.accept(known, found, in_us, accepted_us)
        finally:
            body.release()
        metrics.INGEST_SECONDS.observe((now_us() - in_us) / MICROSECONDS)
        taker.counter(known.pipe.pipe).inc(len(found))
        return accepted([event.id for event in found])

    async def _http_problem(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        status, body, headers = Problem(error.status_code, error.detail).answer()
        self.count(status)
        more = {name.decode(): value.decode() for name, value in headers}
        return Response(body, status, headers={**(error.headers or {}), **more})


def _authorized(taker: Taker, headers: Mapping[bytes, bytes], pipe: str | None) -> PipeVersion:
    """The pipe that the request may write to.

    Without a good key nothing is told; with one, other pipes than its own look as if they were not there.

    Raises:
        Problem: 401 or 404.
    """
    opened = taker.keys.pipes(headers.get(b"authorization"))
    known = [each for each in (taker.registry.get(name) for name in opened) if each is not None]
    if not known:
        raise Problem(
            401, "a valid write key is needed, as Bearer token or as the user of Basic", [_CHALLENGE]
        )
    if pipe is not None:
        known = [each for each in known if each.pipe.pipe == pipe]
        if not known:
            raise Problem(404, "this write key opens no pipe of that name")
    if len(known) > 1:
        raise Problem(404, "this write key opens several pipes: name one, as /v1/pipes/{pipe}/events")
    return known[0]


async def _send(send: Send, answer: Answer, *, head: bool = False) -> None:
    status, body, headers = answer
    length = (b"content-length", b"%d" % len(body))
    start: Message = {"type": "http.response.start", "status": status, "headers": [*headers, length]}
    await send(start)
    await send({"type": "http.response.body", "body": b"" if head else body})


async def _openapi(_: Request) -> Response:
    from hifi_ingest.http.openapi import DOCUMENT

    return Response(DOCUMENT, media_type="application/json")
