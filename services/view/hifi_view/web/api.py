"""The HTTP interface of views. Each answer states the time until which the view is complete."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import orjson
from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from hifi.record.cloudevents.timestamps import format_us
from hifi.runtime import metrics
from hifi.runtime.clock import MICROSECONDS, monotonic_s, now_us
from hifi.runtime.health import version
from hifi.runtime.http.openapi import Operation, document, json_response
from hifi.runtime.http.problem import Problem, retry_later
from hifi.runtime.http.trusted_hosts import TrustedHosts, split_hosts
from hifi.runtime.read_only_sql import QueryRejected, QueryTooExpensive
from hifi_view.read.followed_view import FollowedView
from hifi_view.settings import ViewSettings
from hifi_view.store import row_file
from hifi_view.store.row_queries import Filter, RowQueries
from hifi_view.views import Views
from hifi_view.web import parameters
from hifi_view.web.console import ViewConsole
from hifi_view.web.operations import API, OPERATIONS
from hifi_view.web.read_keys import ReadKeys
from hifi_view.web.read_pool import ViewReads

COMPLETE_UNTIL: Final = "hifi-complete-until"
"""Header with the time before which all accepted events are in the answer. `none`: not known."""
NAME: Final = "name"
_BODY_BYTES: Final = 64 * 1024
_STREAM_S: Final = 60.0
"""Length of a stream, seconds. Clients ask again from its last event; a key that was removed opens nothing then."""
_CHANGE_WAIT_S: Final = 1.0
_CHANGES_AT_ONCE: Final = 500
_EVENT_ID: Final = re.compile(r"([0-9a-f]{12}):([0-9]{1,18})")
_REFUSALS: Final = 100


class _KeyConvertor(PathConvertor):
    """The remaining path, line feeds included."""

    regex = r"[\s\S]*"


register_url_convertor("rest", _KeyConvertor())
Answer = Callable[[Request, "ServedView"], Awaitable[Response]]


class ServedView(NamedTuple):
    """A view with its statements and its threads."""

    followed: FollowedView
    queries: RowQueries
    reads: ViewReads


def application(settings: ViewSettings, views: Views, keys: ReadKeys, stopping: asyncio.Event) -> Starlette:
    """The ASGI application.

    Args:
        settings: limits.
        views: of this instance.
        keys: that may read them.
        stopping: set when streams must end.
    """
    api = ViewApi(settings, views, keys, stopping)
    routes = [
        *ViewConsole(settings.observe_url, settings.manage_url).routes(),
        Route("/openapi.json", _openapi),
        *(_route(operation, api) for operation in OPERATIONS),
    ]
    origins = sorted({origin for view in views.by_name.values() for origin in view.view.serve.origins})
    cors_middleware = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type", "last-event-id"],
        expose_headers=[COMPLETE_UNTIL, "retry-after"],
    )
    host_middleware = Middleware(TrustedHosts, names=split_hosts(settings.view_hosts), origins=origins)
    return Starlette(
        routes=routes,
        exception_handlers={Problem: _problem, HTTPException: _http_problem},
        middleware=[host_middleware, cors_middleware] if origins else [host_middleware],
    )


def _route(operation: Operation, api: "ViewApi") -> Route:
    """The route of an operation. A key of several values has slashes, so it is the remaining path."""
    handler = getattr(api, operation.name)
    if f"{{{NAME}}}" in operation.path:
        handler = api.of_view(operation.name, handler)
    return Route(operation.path.replace("{key}", "{key:rest}"), handler, methods=[operation.method])


async def _openapi(_: Request) -> Response:
    return json_response(document(OPERATIONS, version("view"), API))


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


async def _http_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = list((error.headers or {}).items())
    return Problem(error.status_code, f"{error.detail}: see /openapi.json.", headers).response()


class ViewApi:
    """Handlers, one method for each route."""

    def __init__(self, settings: ViewSettings, views: Views, keys: ReadKeys, stopping: asyncio.Event) -> None:
        """Serve views; parameters as of `application`."""
        self._settings = settings
        self._keys = keys
        self._stopping = stopping
        self._streams = 0
        self._views = {
            name: ServedView(view, RowQueries(view.view), ViewReads(view))
            for name, view in views.by_name.items()
        }

    async def listed(self, request: Request) -> Response:
        """GET the views that the key opens."""
        view_names = self._allowed(request.headers)
        return _json({"views": [_summary(self._views[name].followed) for name in sorted(view_names)]})

    def of_view(self, operation_name: str, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """The handler of a route of one view: checks the key, counts answers, and sets `hifi-complete-until`."""

        async def handle(request: Request) -> Response:
            """Answer a request."""
            status, complete_until = 500, ""
            try:
                view = self._view(request)
                at_least_us = parameters.at_least(request.query_params.get(parameters.AT_LEAST))
                if request.method == "POST":
                    request.state.body = await _body(request)
                if at_least_us is not None:
                    await self._wait(view.followed, at_least_us)
                # Read before the rows: they may have more events than the header states, never fewer. Nothing is
                # awaited between, so that both are of the same file.
                complete_until = complete_text(view.followed)
                start_s = monotonic_s()
                response = await answer(request, view)
                metrics.VIEW_REQUEST_SECONDS.labels(operation_name).observe(monotonic_s() - start_s)
                response.headers[COMPLETE_UNTIL] = complete_until
                response.headers["cache-control"] = "no-store"
                status = response.status_code
                return response
            except Problem as error:
                status = error.status
                if complete_until:  # a row that is missing is missing until then
                    error.headers = [*error.headers, (COMPLETE_UNTIL, complete_until)]
                raise
            finally:
                metrics.VIEW_REQUESTS.labels(operation_name, status).inc()

        return handle

    async def about(self, _: Request, view: ServedView) -> Response:
        """GET a view: fields, state, size."""
        declaration = view.followed.view
        fields = {name: str(kind) for name, kind in declaration.columns.items()}
        return _json(
            {**_summary(view.followed), "key": declaration.key, "fields": fields, "table": declaration.table}
        )

    async def row(self, request: Request, view: ServedView) -> Response:
        """GET the row of a key."""
        key = parameters.path_key(view.followed.view, request.path_params["key"])
        row = await view.reads.rows.read(lambda database: view.queries.row(database, key))
        if row is None:
            raise Problem(404, "The view has no row of this key.")
        return _json(row)

    async def rows(self, request: Request, view: ServedView) -> Response:
        """GET rows by filters, in the order of their keys."""
        declaration, query = view.followed.view, request.query_params
        conditions = parameters.filters(declaration, query.multi_items())
        after_key = parameters.after_key(declaration, query.get(parameters.AFTER))
        max_rows = parameters.limit(query.get(parameters.LIMIT), self._settings.view_sql_rows)
        timeout_s = self._settings.view_sql_s
        try:
            rows, next_key = await view.reads.rows.read(
                lambda database: view.queries.rows(database, conditions, after_key, max_rows, timeout_s)
            )
        except QueryTooExpensive as error:
            raise Problem(422, f"{_sentence(error)}; ask for fewer rows.") from None
        next_text = None if next_key is None else orjson.dumps(next_key).decode()
        return _json({"rows": rows, "next": next_text})

    async def sql(self, request: Request, view: ServedView) -> Response:
        """POST SQL: one SELECT from the table of the view."""
        declaration = view.followed.view
        if not declaration.serve.sql:
            raise Problem(403, "This view accepts no SQL; its declaration can: `serve: {sql: true}`.")
        sql = _sql(request.state.body)
        try:
            result = await view.reads.sql.read(
                lambda database: view.queries.sql(
                    database, sql, self._settings.view_sql_rows, self._settings.view_sql_s
                )
            )
        except QueryRejected as error:
            allowed_sql = (
                f"write one SELECT from {declaration.table} with the columns {', '.join(declaration.columns)}"
            )
            raise Problem(400, f"{_sentence(error)}; {allowed_sql}.") from None
        except QueryTooExpensive as error:
            raise Problem(422, f"{_sentence(error)}; read less.") from None
        return _json({"columns": result.columns, "rows": result.rows, "more": result.more})

    async def changes(self, request: Request, view: ServedView) -> Response:
        """GET changed rows as server-sent events, for a minute."""
        conditions = parameters.key_filters(view.followed.view, request.query_params.multi_items())
        if self._streams >= self._settings.view_streams:
            raise retry_later("Too many streams of changes are open; ask for rows.")
        self._streams += 1
        events = self._events(view, conditions, request.headers.get("last-event-id"))
        return StreamingResponse(events, media_type="text/event-stream")

    async def accounts(self, _: Request, view: ServedView) -> Response:
        """GET the outcomes of the records that were read, by partition and offset range, and refused events."""
        ranges, refused_events = await view.reads.rows.read(
            lambda database: (row_file.accounts(database), row_file.refusals(database, _REFUSALS))
        )
        return _json(
            {
                "ranges": [
                    {
                        "partition": accounted.partition,
                        "first": accounted.first,
                        "next": accounted.next_offset,
                        "absent": accounted.next_offset - accounted.first - accounted.account.read,
                        **{name: getattr(accounted.account, name) for name in accounted.account.__slots__},
                    }
                    for accounted in ranges
                ],
                "refused": [event._asdict() for event in refused_events],
            }
        )

    async def _events(
        self, view: ServedView, conditions: Sequence[Filter], last_event_id: str | None
    ) -> AsyncIterator[bytes]:
        """Rows from a change on; all rows first if the change is of another file, or none is given."""
        try:
            end_s = monotonic_s() + _STREAM_S
            build, last_change = _event_id(last_event_id)
            followed, is_begun, has_all, sent_complete_until = view.followed, False, False, ""
            yield b"retry: 1000\n\n"
            while monotonic_s() < end_s and not self._stopping.is_set():
                if not followed.build:  # the file was not opened yet
                    await followed.next_change(_CHANGE_WAIT_S)
                    continue
                is_ahead = not is_begun and last_change > followed.change
                is_begun = True
                if build != followed.build or is_ahead:
                    build, last_change, has_all = followed.build, 0, False
                    yield b"event: reset\ndata: {}\n\n"
                    continue
                # Before the rows are read: all rows that it concerns have been sent once a read finds no more changes.
                complete_us, complete_until = followed.complete.time_us, complete_text(followed)
                if not has_all or last_change < followed.change:
                    changes = await view.reads.rows.read(
                        lambda database, after=last_change: view.queries.changed(  # type: ignore[misc]
                            database, conditions, after, _CHANGES_AT_ONCE, self._settings.view_sql_s
                        )
                    )
                    last_change, has_all = changes.last_change, changes.is_last
                    for change_number, row in changes.rows:
                        yield b"id: %s:%d\nevent: row\ndata: %b\n\n" % (
                            build.encode(),
                            change_number,
                            orjson.dumps(row),
                        )
                if not has_all:
                    # For the client's next request: filters may have left out the last rows.
                    yield b"id: %s:%d\n\n" % (build.encode(), last_change)
                    continue
                is_valid = complete_us is None or complete_us <= (followed.complete.time_us or 0)
                if complete_until != sent_complete_until and is_valid:
                    sent_complete_until = complete_until
                    yield b"id: %s:%d\nevent: complete-until\ndata: %b\n\n" % (
                        build.encode(),
                        last_change,
                        orjson.dumps(complete_until),
                    )
                await followed.next_change(_CHANGE_WAIT_S)
        except (Problem, QueryTooExpensive):
            return  # the client asks again from the last event
        finally:
            self._streams -= 1

    async def _wait(self, view: FollowedView, time_us: int) -> None:
        """Wait until all events accepted before a time are in a view.

        Raises:
            Problem: 503, the view is not complete in time.
        """
        end_s = monotonic_s() + self._settings.view_wait_s
        while (view.complete.time_us or 0) < time_us:
            remaining_s = end_s - monotonic_s()
            if remaining_s <= 0:
                members = {"complete_until": complete_text(view), "state": view.state, "reason": view.reason}
                raise retry_later("The view is not complete until this time yet; ask again.", members=members)
            await view.next_change(remaining_s)

    def _view(self, request: Request) -> ServedView:
        name = str(request.path_params[NAME])
        if name not in self._allowed(request.headers):
            raise Problem(404, "The key opens no view of this name.")
        return self._views[name]

    def _allowed(self, headers: Headers) -> frozenset[str]:
        view_names = self._keys.views_of(headers.get("authorization"))
        if not view_names:
            raise Problem(
                401,
                "Send a read key of a view: Authorization: Bearer KEY.",
                [("www-authenticate", "Bearer")],
            )
        return view_names


def complete_text(view: FollowedView) -> str:
    """The time until which a view is complete, as text of the header."""
    return "none" if view.complete.time_us is None else format_us(view.complete.time_us).decode()


def _summary(view: FollowedView) -> dict[str, Any]:
    behind_s = None if view.complete.time_us is None else (now_us() - view.complete.time_us) / MICROSECONDS
    return {
        "view": view.view.view,
        "pipe": view.view.from_.pipe,
        "at": view.view.from_.at,
        "state": view.state,
        "reason": view.reason,
        "complete_until": complete_text(view),
        "behind_s": behind_s,
        "rows": view.rows,
        "size_bytes": view.used_bytes,
        "positions": {str(partition): offset for partition, offset in sorted(view.positions.items())},
    }


def _event_id(last_event_id: str | None) -> tuple[str, int]:
    match = _EVENT_ID.fullmatch(last_event_id or "")
    return (match[1], int(match[2])) if match else ("", 0)


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_BYTES:
            raise Problem(413, f"The body has more than {_BODY_BYTES:,} bytes.")
    return body


def _sql(body: bytes) -> str:
    try:
        request_body = orjson.loads(body)
    except orjson.JSONDecodeError:
        request_body = None
    if (
        not isinstance(request_body, dict)
        or set(request_body) != {"sql"}
        or not isinstance(request_body["sql"], str)
    ):
        raise Problem(400, 'The body must be a JSON object {"sql": "SELECT …"}.')
    return str(request_body["sql"])


def _sentence(error: QueryRejected | QueryTooExpensive) -> str:
    text = error.detail if isinstance(error, QueryRejected) else str(error)
    return text[:1].upper() + text[1:]


def _json(content: object) -> Response:
    return Response(orjson.dumps(content, default=_hex), media_type="application/json")


def _hex(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError
