"""One HTTP/1.1 connection to a destination: sends a request and returns its status line.

hifi has its own client because the status line is the delivery: general clients report it only once all headers have
arrived, do not report whether any byte of the request was sent, and use six times as much CPU per request
(docs/decisions/egest-http-client.md). llhttp parses the answers, through httptools.
"""

import asyncio
import math
import re
import select
from collections.abc import Callable
from typing import Final, cast

import httptools

from hifi.delivery.answer import Answer, NoResponse
from hifi.runtime.clock import now_us
from hifi_http.destination.retry_after import retry_after_s

BODY_BYTES: Final = 64 * 1024
"""Bytes of an answer's body that are read; the connection of a longer one is closed."""
BODY_S: Final = 2.0
"""Time after the status line in which the body is read, seconds; then the connection is closed."""
IDLE_S: Final = 3.0
"""Time for which an idle connection may be reused, seconds: below the 5 s after which common servers close theirs,
because a request that meets the close is ambiguous. If a server announces its own time-out (`Keep-Alive: timeout=60`),
that time less one second is used."""
LONGEST_IDLE_S: Final = 60.0
"""Maximum of the latter, seconds."""
_FINAL_READ_S: Final = 0.02
_HEAD_BYTES: Final = 64 * 1024
_STATUS_LINE: Final = re.compile(rb"(?:\A|\r\n\r\n)HTTP/1\.[01] ([2-9]\d\d)[ \r][^\n]*\n")
_IDLE_TIMEOUT: Final = re.compile(rb"HTTP/1\.[01] 408 ")
"""Responses that servers may send before they close an idle connection (RFC 9110, 15.5.9)."""
_RETIRED_S: Final = 0.05
_TIMEOUT: Final = re.compile(rb"timeout=(\d{1,6})")


class DestinationConnection(asyncio.Protocol):
    """A connection that carries one request at a time."""

    def __init__(
        self, on_release: Callable[["DestinationConnection"], None], on_stray_bytes: Callable[[], None]
    ) -> None:
        """Start unconnected; the event loop calls `connection_made`.

        Args:
            on_release: called when a request is over and the connection may be reused, and when it has been closed.
            on_stray_bytes: called when bytes arrive that are part of no answer to a request.
        """
        self._loop = asyncio.get_running_loop()
        self._on_release = on_release
        self._on_stray_bytes = on_stray_bytes
        self._parser: httptools.HttpResponseParser
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer | NoResponse] | None = None
        self._limit_s = math.inf
        """When the current request or the rest of its answer is over at the latest, on the loop's clock."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = math.inf
        self._final_read: asyncio.TimerHandle | None = None
        self._head = b""
        self._status_read = False
        self._complete = self._keep_alive = False
        self._retry_after: bytes | None = None
        self._body_bytes = 0
        self._readable = select.poll()
        self.busy = False
        """A request is in flight, or the rest of its answer is being read."""
        self.idle_until_s = 0.0
        """Time on the loop's clock from which on the connection may not be reused."""
        self._idle_s = IDLE_S

    @property
    def open(self) -> bool:
        """Whether it can take a request, as far as is known."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def clean(self) -> bool:
        """Whether an idle connection is open, and nothing has arrived that the event loop has not read yet.

        What arrives without a request, or the end of the stream, would otherwise meet the next request.
        """
        return self.open and not self._readable.poll(0)

    @property
    def answered(self) -> bool:
        """Whether the status line has arrived and only the rest of the answer is outstanding."""
        return self.busy and self._answer is None

    def request(self, data: bytes, timeout_s: float) -> asyncio.Future[Answer | NoResponse]:
        """Send a complete request.

        Args:
            data: head and body.
            timeout_s: until the status line, seconds.

        Returns:
            A future that never fails.
        """
        assert self._transport is not None
        self.busy = True
        self._parser = httptools.HttpResponseParser(self)  # of an earlier answer nothing is left
        self._head = b""
        self._status_read = self._complete = False
        self._retry_after = None
        self._body_bytes = 0
        answer = self._answer = self._loop.create_future()
        self._limit(timeout_s)
        self._transport.write(data)
        return answer

    def close(self) -> None:
        """Close the connection; the result of a request in flight is ambiguous."""
        if self._transport is not None:
            self._transport.abort()

    def retire(self) -> None:
        """Close an idle connection once the event loop has read what arrived on it."""
        self._loop.call_later(_RETIRED_S, self.close)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Implement asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)
        self._readable.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Implement asyncio.Protocol."""
        if not self.busy:
            if self.open and not _IDLE_TIMEOUT.match(data):
                self._on_stray_bytes()
            self.close()
            return
        if not self._status_read:
            self._head += data
            if len(self._head) > _HEAD_BYTES:
                self._fail("protocol", "the headers of the answer are too long")
                return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._complete:  # such as a body that is longer than declared
                self._on_stray_bytes()
            self._fail("protocol", f"the answer is not HTTP/1.1: {error}")
            return
        if not self._status_read and (match := _STATUS_LINE.search(self._head)) and match[1].startswith(b"2"):
            self._resolve(int(match[1]))  # the remaining headers change nothing
        if self._complete:
            self._end_answer()
        if self._limit_s == math.inf and self.answered:  # usually the body has arrived as well
            self._limit(BODY_S)

    def eof_received(self) -> None:
        """Implement asyncio.Protocol: close this side too."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Implement asyncio.Protocol."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if exc is None:
            self._end_without_answer(
                NoResponse(
                    "closed", "the destination closed the connection before the status line", ambiguous=True
                )
            )
        else:
            self._end_without_answer(
                NoResponse("reset", f"the connection broke before the status line: {exc}", ambiguous=True)
            )
        self._finish()

    def on_message_begin(self) -> None:
        """Implement the callback of the parser."""
        if self._complete:  # the beginning of a second answer to one request
            if self.open:
                self._on_stray_bytes()
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Implement the callback of the parser."""
        if len(name) == 11 and name.lower() == b"retry-after":
            self._retry_after = value
        elif len(name) == 10 and name.lower() == b"keep-alive" and (match := _TIMEOUT.search(value)):
            self._idle_s = min(max(int(match[1]) - 1.0, 0.0), LONGEST_IDLE_S)

    def on_headers_complete(self) -> None:
        """Implement the callback of the parser."""
        status = self._parser.get_status_code()
        if status < 200:
            return  # an interim answer, such as 103 Early Hints
        self._status_read = True
        self._resolve(status)

    def on_body(self, body: bytes) -> None:
        """Implement the callback of the parser."""
        self._body_bytes += len(body)
        if self._body_bytes > BODY_BYTES:
            self.close()

    def on_message_complete(self) -> None:
        """Implement the callback of the parser."""
        if self._status_read:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()

    def _end_answer(self) -> None:
        """The complete answer was read: keep the connection if it may be reused."""
        if not self.busy or self._transport is None or self._transport.is_closing():
            return
        # A destination that answers before it has read the request will not read the next one properly.
        if not self._keep_alive or self._transport.get_write_buffer_size():
            self.close()
            return
        self.idle_until_s = self._loop.time() + self._idle_s
        self._finish()

    def _resolve(self, status: int) -> None:
        if self._answer is None:
            return
        time_us = now_us()
        if not self._answer.done():
            self._answer.set_result(Answer(status, retry_after_s(self._retry_after, time_us), time_us))
        self._answer = None
        self._end_limit()

    def _end_without_answer(self, result: NoResponse) -> None:
        """Set the result once nothing more can arrive."""
        if self._answer is None:
            return
        # A complete status line is the answer, even if the headers after it were cut off.
        match = _STATUS_LINE.search(self._head)
        if match is not None and not self._status_read:
            self._resolve(int(match[1]))
            return
        if not self._answer.done():
            self._answer.set_result(result)
        self._answer = None

    def _limit(self, seconds: float) -> None:
        """Bound the request, or the rest of its answer.

        Most limits are lifted before they are reached, so the timer stays and is set anew when it fires: a connection
        needs no timer for each request.
        """
        self._limit_s = self._loop.time() + seconds
        if self._timer is None or self._limit_s < self._timer_s:
            if self._timer is not None:
                self._timer.cancel()
            self._set_timer()

    def _set_timer(self) -> None:
        self._timer, self._timer_s = self._loop.call_at(self._limit_s, self._timer_fired), self._limit_s

    def _end_limit(self) -> None:
        self._limit_s = math.inf
        if self._final_read is not None:
            self._final_read.cancel()
            self._final_read = None

    def _timer_fired(self) -> None:
        self._timer = None
        if self._limit_s > self._timer_s:
            if self._limit_s < math.inf:
                self._set_timer()
            return
        if self.answered:
            self.close()
            return
        # A process resumed after SIGSTOP sees its expired timers before its sockets (epoll returns EINTR, and its own
        # time-out has expired too). A second, short timer lets the loop read what arrived meanwhile; with a delay of 0
        # the loop would run it before it polls the sockets.
        self._final_read = self._loop.call_later(_FINAL_READ_S, self._timed_out)

    def _timed_out(self) -> None:
        self._end_without_answer(
            NoResponse("timeout", "the destination sent no status line in time", ambiguous=True)
        )
        self.close()

    def _fail(self, reason: str, detail: str) -> None:
        self._end_without_answer(NoResponse(reason, detail, ambiguous=True))
        self.close()

    def _finish(self) -> None:
        self._end_limit()
        self.busy = False
        self._on_release(self)
