"""A server's connection with bounds: size of the head, time to send a request, number of connections.

uvicorn with httptools bounds none of these: a head that never ends grows in memory, and a sender that falls
silent in the middle of a request keeps its connection for ever. Every refusal is problem details (RFC 9457).
"""

import asyncio
import resource
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_SWEEP_S: Final = 0.25
_SPARE_FILES: Final = 128
"""Descriptors that are not for connections: Kafka's, files, the event loop's."""
_MANY_FILES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection, and all of them together, may cost."""

    head_bytes: int = 32 * 1024
    """Request line and headers together."""
    head_s: float = 10
    """From connecting, or from the first byte of a request, to the end of its headers, seconds."""
    request_s: float = 30
    """From the end of the headers to the last byte of the body, seconds."""
    answer_s: float = 30
    """For a client that does not read its answers, seconds."""
    connections: int = 4096


class Guarded(HttpToolsProtocol):
    """A connection that is ended when it passes a limit. `sweep` must be called often."""

    limits = Limits()
    refused: Callable[[int], None] = staticmethod(lambda _: None)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected: it has as long for its first byte as for a whole head."""
        super().connection_made(transport)
        self._head_bytes = 0
        self._in_head = True
        self._deaf = False
        self._whole = False
        """A request was completed by the bytes that came in last."""
        self._plain_head = b""
        self._due_s: float | None = self.loop.time() + self.limits.head_s
        self._unread_since_s: float | None = None
        if len(self.connections) > self.limits.connections:
            self._refuse(503, "too many connections are open; come again in a moment", b"retry-after: 1")

    def data_received(self, data: bytes) -> None:
        """Bytes came in."""
        if self._deaf or self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        if self._due_s is None and not self._running:
            # Also for bytes that begin no request, such as empty lines: they ended the keep-alive timer.
            self._due_s = self.loop.time() + self.limits.head_s
        self._whole = False
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self._refuse(400, "this is not a valid HTTP/1.1 request")
        if self._in_head:
            if not self._whole:  # else most of it was the body of the request before
                self._head_bytes += len(data)
            if self._head_bytes > self.limits.head_bytes:
                self._refuse(431, f"the headers exceed {self.limits.head_bytes} bytes")

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._plain_head and not self._deaf:
                head, self._plain_head = self._plain_head, b""
                self.parser = httptools.HttpRequestParser(self)
                self._feed(head + data[upgrade.args[0] :])

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head = True
        self._due_s = self._due_s or self.loop.time() + self.limits.head_s

    def on_headers_complete(self) -> None:
        """The head is there: start the application, unless the head is too large."""
        size = len(self.url) + sum([len(name) + len(value) + 4 for name, value in self.headers])
        if size > self.limits.head_bytes:
            self._refuse(431, f"the headers exceed {self.limits.head_bytes} bytes")
        if self._deaf:
            return
        if self.parser.should_upgrade():
            self._plain_head = self._without_upgrade()
            return
        super().on_headers_complete()
        self._in_head = False
        self._head_bytes = 0
        self._due_s = self.loop.time() + self.limits.request_s

    def on_body(self, body: bytes) -> None:
        """A part of the body came in."""
        if not self._deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The last byte of the request came in."""
        if self._deaf or self._plain_head:
            return
        self._due_s = None
        self._whole = True
        super().on_message_complete()
        if not self._running and self.timeout_keep_alive_task is None:
            # Answered before its body was there: nothing else would end a connection that falls silent now.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def sweep(self, now_s: float) -> None:
        """End the connection if it is overdue; `now_s` of the loop's clock."""
        closing = self.transport.is_closing()
        if self._due_s is not None and now_s > self._due_s and not closing:
            self._refuse(408, f"the request's {'headers' if self._in_head else 'body'} did not come in time")
        if not closing and not self.flow.write_paused:
            self._unread_since_s = None
        elif self._unread_since_s is None:
            self._unread_since_s = now_s
        elif now_s - self._unread_since_s > self.limits.answer_s:
            self.transport.abort()

    def _without_upgrade(self) -> bytes:
        """The head of a request that wishes to upgrade, without the wish.

        A server may ignore the wish (RFC 9110, 7.8), but the parser takes the body for the new protocol's. Java's
        client wishes for h2c by default, so its bodies would be lost.
        """
        if self.parser.get_method() == b"CONNECT":
            self._refuse(400, "this server is no proxy")
            return b""
        dropped = {b"upgrade", b"connection", b"http2-settings"}
        lines = [
            b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        ]
        lines += [b"%s: %s" % header for header in self.headers if header[0] not in dropped]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            lines.append(b"connection: close")
        return b"\r\n".join([*lines, b"", b""])

    def _refuse(self, status: int, detail: str, *more: bytes) -> None:
        """Listen no more; answer in place of the application where no answer was begun; close."""
        if self._deaf or self.transport.is_closing():
            return
        self._deaf = True
        self._due_s = None
        running = self._running
        if running and self._in_head:
            # An earlier request is still being answered, and our answer must not be mistaken for its.
            self.cycle.keep_alive = False
            return
        if self._in_head or (running and not self.cycle.response_started and not self.pipeline):
            self.transport.write(_answer(status, detail, more))
            self.refused(status)
        if running:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    @property
    def _running(self) -> bool:
        """The last request whose head came in has not been answered wholly yet."""
        cycle: Any = self.cycle  # None before the first one
        return cycle is not None and not cycle.response_complete


def _answer(status: int, detail: str, more: tuple[bytes, ...]) -> bytes:
    phrase = HTTPStatus(status).phrase
    body = orjson.dumps({"type": "about:blank", "title": phrase, "status": status, "detail": detail})
    lines = [
        b"HTTP/1.1 %d %s" % (status, phrase.encode()),
        b"content-type: application/problem+json",
        b"content-length: %d" % len(body),
        *more,
        b"connection: close",
        b"",
        body,
    ]
    return b"\r\n".join(lines)


def guarded(limits: Limits, refused: Callable[[int], None]) -> type[Guarded]:
    """A class of connections with these limits; `refused` is told the status of each refusal."""
    return type("GuardedConnection", (Guarded,), {"limits": limits, "refused": staticmethod(refused)})


async def sweep(connections: Iterable[Guarded]) -> None:
    """Look after connections until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_SWEEP_S)
        now_s = loop.time()
        for connection in list(connections):
            connection.sweep(now_s)


def room_for_connections() -> int:
    """Raise this process's soft limit of open files as far as it may; how many connections fit then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MANY_FILES if hard == resource.RLIM_INFINITY else min(hard, _MANY_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted) - _SPARE_FILES
