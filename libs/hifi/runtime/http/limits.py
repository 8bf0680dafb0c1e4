"""Limits of an HTTP server's connections: size of the headers, time to send a request, number of connections.

uvicorn with httptools has none of these limits: headers without an end grow in memory, and a client that stops in the
middle of a request keeps its connection forever. Refusals are problem details (RFC 9457).
"""

import asyncio
import resource
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

import httptools
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from hifi.runtime.http import problem
from hifi.runtime.http.joined_writes import JoinedWrites

_SWEEP_S: Final = 0.25
_RESERVED_FILES: Final = 128
"""File descriptors kept free for Kafka connections, files and the event loop."""
_MAX_OPEN_FILES: Final = 65_536

Gate = Callable[[Scope, bytes, bytes], problem.ResponseParts | None]
"""Gets the scope of a request (without method and path), its method and its target, when its headers are complete.
Returns the response to a request that is refused without the application; None: the application answers it. What it
puts into the scope's `state` is for the application."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one connection, and of their number."""

    head_bytes: int = 32 * 1024
    """Request line and headers together."""
    head_s: float = 10
    """Time from the connection, or from the first byte of a request, to the end of its headers, seconds."""
    request_s: float = 30
    """Time from the end of the headers to the last byte of the body, seconds."""
    response_s: float = 30
    """Time that a client may leave a response unread, seconds."""
    connections: int = 4096
    """Open connections at a time."""


class LimitedConnection(HttpToolsProtocol):
    """A connection that is closed when it exceeds a limit. Time limits are enforced by calling `sweep` regularly."""

    limits = ConnectionLimits()
    on_refused: Callable[[int], None] = staticmethod(lambda _: None)
    """Called with the status of each request refused here."""
    gate: Gate = staticmethod(lambda *_: None)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the header time limit: it covers the time to the first byte too."""
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type] # as a transport
        self._header_bytes = 0
        self._in_headers = True
        self._refused = False
        self._answered = False
        """The gate has answered the request whose body is being received."""
        self._request_complete = False
        """The bytes received last completed a request."""
        self._head_without_upgrade = b""
        self._deadline_s: float | None = self.loop.time() + self.limits.head_s
        self._unread_since_s: float | None = None
        if len(self.connections) > self.limits.connections:
            self._refuse(503, "too many connections are open; retry in a moment", ("retry-after", "1"))

    def data_received(self, data: bytes) -> None:
        """Parse received bytes and enforce the size limit of the headers."""
        if self._refused or self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        if self._deadline_s is None and not self._running:
            # Also for bytes that start no request, such as empty lines, because they stopped the keep-alive timer.
            self._deadline_s = self.loop.time() + self.limits.head_s
        self._request_complete = False
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self._refuse(400, "this is not a valid HTTP/1.1 request")
        if self._in_headers:
            if (
                not self._request_complete
            ):  # otherwise most of these bytes are the body of the previous request
                self._header_bytes += len(data)
            if self._header_bytes > self.limits.head_bytes:
                self._refuse(431, f"the headers exceed {self.limits.head_bytes} bytes")

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._head_without_upgrade and not self._refused:
                head, self._head_without_upgrade = self._head_without_upgrade, b""
                self.parser = httptools.HttpRequestParser(self)
                self._feed(head + data[upgrade.args[0] :])

    def on_message_begin(self) -> None:
        """Start the header time limit of a request."""
        super().on_message_begin()
        self._in_headers = True
        self._deadline_s = self._deadline_s or self.loop.time() + self.limits.head_s

    def on_headers_complete(self) -> None:
        """Start the application, unless the headers are too large."""
        size = len(self.url) + sum([len(name) + len(value) + 4 for name, value in self.headers])
        if size > self.limits.head_bytes:
            self._refuse(431, f"the headers exceed {self.limits.head_bytes} bytes")
        if self._refused:
            return
        if self.parser.should_upgrade():
            self._head_without_upgrade = self._remove_upgrade()
            return
        self._answered = self._answer_at_gate()
        if not self._answered:
            super().on_headers_complete()
        self._in_headers = False
        self._header_bytes = 0
        self._deadline_s = self.loop.time() + self.limits.request_s

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body to the application."""
        if not (self._refused or self._answered):
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End the time limits of the request."""
        if self._refused or self._head_without_upgrade:
            return
        self._deadline_s = None
        self._request_complete = True
        if not self._answered:
            super().on_message_complete()
        if not self._running and self.timeout_keep_alive_task is None:
            # The response was sent before the body was complete, so uvicorn has not started its keep-alive timer.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def sweep(self, now_s: float) -> None:
        """Close the connection if a time limit has passed; `now_s` is the event loop's clock."""
        is_closing = self.transport.is_closing()
        if self._deadline_s is not None and now_s > self._deadline_s and not is_closing:
            self._refuse(
                408, f"the request's {'headers' if self._in_headers else 'body'} were not received in time"
            )
        if not is_closing and not self.flow.write_paused:
            self._unread_since_s = None
        elif self._unread_since_s is None:
            self._unread_since_s = now_s
        elif now_s - self._unread_since_s > self.limits.response_s:
            self.transport.abort()

    def _answer_at_gate(self) -> bool:
        """Whether the gate has answered the request.

        That costs about a third of an answer of the application, which needs a task. Otherwise a flood of requests to
        refuse leaves no time for those to accept.
        """
        # The application handles what changes the connection or the order of responses.
        if self._running or self.expect_100_continue or not self.parser.should_keep_alive():
            return False
        answer = self.gate(cast(Scope, self.scope), self.parser.get_method(), self.url)
        if answer is None:
            return False
        self.transport.write(_response(answer, self.server_state.default_headers))
        return True

    def _remove_upgrade(self) -> bytes:
        """The head of a request without its Upgrade header.

        A server may ignore an upgrade (RFC 9110, 7.8), but httptools then treats the body as data of the new protocol
        and drops it. Java's HttpClient requests an upgrade to h2c by default.
        """
        if self.parser.get_method() == b"CONNECT":
            self._refuse(400, "this server is not a proxy")
            return b""
        dropped_names = {b"upgrade", b"connection", b"http2-settings"}
        lines = [
            b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        ]
        lines += [b"%s: %s" % header for header in self.headers if header[0] not in dropped_names]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            lines.append(b"connection: close")
        return b"\r\n".join([*lines, b"", b""])

    def _refuse(self, status: int, detail: str, *headers: tuple[str, str]) -> None:
        """Stop reading, send an error response unless the application has started one, and close."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self._deadline_s = None
        is_running = self._running
        if is_running and self._in_headers:
            # The client would take this response for that of the request still being processed.
            self.cycle.keep_alive = False
            return
        if self._in_headers or (is_running and not self.cycle.response_started and not self.pipeline):
            answer = problem.Problem(status, detail, headers).parts()
            self.transport.write(_response(answer, [(b"connection", b"close")]))
            self.on_refused(status)
        if is_running:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    @property
    def _running(self) -> bool:
        """Whether the response to the latest request is incomplete."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete


def _response(answer: problem.ResponseParts, extra_headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    status, body, headers = answer
    lines = [b"%s: %s\r\n" % header for header in (*headers, *extra_headers)]
    return b"".join([STATUS_LINE[status], *lines, b"content-length: %d\r\n\r\n" % len(body), body])


def limited_connection(
    limits: ConnectionLimits, on_refused: Callable[[int], None], gate: Gate
) -> type[LimitedConnection]:
    """A connection class with these limits, for uvicorn's `http` option.

    Args:
        limits: of each connection.
        on_refused: called with the status of each request refused for a limit.
        gate: refuses requests before the application sees them.
    """
    members = {"limits": limits, "on_refused": staticmethod(on_refused), "gate": staticmethod(gate)}
    return type("ConfiguredConnection", (LimitedConnection,), members)


async def sweep(connections: Iterable[LimitedConnection]) -> None:
    """Enforce the time limits of connections every 250 ms, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_SWEEP_S)
        now_s = loop.time()
        for connection in list(connections):
            connection.sweep(now_s)


def raise_open_files_limit() -> int:
    """Raise this process's soft limit of open files as far as allowed, and return how many connections fit in it."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_OPEN_FILES if hard_limit == resource.RLIM_INFINITY else min(hard_limit, _MAX_OPEN_FILES)
    if soft_limit < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard_limit))
    return max(soft_limit, limit) - _RESERVED_FILES
