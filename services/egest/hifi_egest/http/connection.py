"""One HTTP/1.1 connection to a destination: a request goes out, its status line comes back.

A client of our own, because the status line is the delivery: general clients report it only when all headers have
come, cannot tell whether any byte of the request was sent, and cost six times as much CPU a request
(docs/decisions/egest-http-client.md). The parsing is llhttp's, through httptools.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Final, cast

import httptools

from hifi.clock import now_us
from hifi_egest.policy.answer import Answer, Silence, retry_after_s

BODY_BYTES: Final = 64 * 1024
"""An answer's body is read so far; of a longer one the connection is closed."""
BODY_S: Final = 2.0
"""And for so long after the status line, seconds."""
IDLE_S: Final = 3.0
"""A connection is used again only within this time: below the 5 s after which common servers close theirs, since a
request that meets the closing is an ambiguous one. A server that announces its own time (`Keep-Alive: timeout=60`) is
believed, less a second."""
LONGEST_IDLE_S: Final = 60.0
_LAST_LOOK_S: Final = 0.02
_HEAD_BYTES: Final = 64 * 1024
_STATUS_LINE: Final = re.compile(rb"(?:\A|\r\n\r\n)HTTP/1\.[01] ([2-9]\d\d)[ \r][^\n]*\n")
_TIMEOUT: Final = re.compile(rb"timeout=(\d{1,6})")


class Connection(asyncio.Protocol):
    """Used for one request at a time."""

    def __init__(self, released: Callable[["Connection"], None]) -> None:
        """Begin unconnected; the event loop says when it is.

        Args:
            released: called once a request is over and the connection may be used again, and when it is closed.
        """
        self._loop = asyncio.get_running_loop()
        self._released = released
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer | Silence] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._head = b""
        self._final = False
        self._retry_after: bytes | None = None
        self._body_bytes = 0
        self.busy = False
        """A request is under way, or the rest of its answer."""
        self.idle_until_s = 0.0
        """When it is too old to be used again, on the loop's clock."""
        self._idle_s = IDLE_S

    @property
    def open(self) -> bool:
        """It can take a request, as far as is known."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def answered(self) -> bool:
        """The status line has come; only the rest of the answer is awaited."""
        return self.busy and self._answer is None

    def request(self, data: bytes, timeout_s: float) -> asyncio.Future[Answer | Silence]:
        """Send a whole request; the future never fails. `timeout_s`: until the status line, seconds."""
        assert self._transport is not None
        self.busy = True
        self._head = b""
        self._final = False
        self._retry_after = None
        self._body_bytes = 0
        answer = self._answer = self._loop.create_future()
        self._timer = self._loop.call_later(timeout_s, self._late)
        self._transport.write(data)
        return answer

    def close(self) -> None:
        """Close it; a request under way ends ambiguously."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Of asyncio.Protocol."""
        if not self.busy:
            self.close()  # nobody asked
            return
        if not self._final:
            self._head += data
            if len(self._head) > _HEAD_BYTES:
                self._fail("protocol", "the headers of the answer are too long")
                return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail("protocol", f"the answer is not HTTP/1.1: {error}")
            return
        if not self._final and (match := _STATUS_LINE.search(self._head)) and match[1].startswith(b"2"):
            self._resolve(int(match[1]))  # the headers take their time, and say nothing more that matters
        if self.answered and self._timer is None:  # mostly the body has come, too
            self._timer = self._loop.call_later(BODY_S, self.close)

    def eof_received(self) -> None:
        """Of asyncio.Protocol: close our side too."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Of asyncio.Protocol."""
        self._transport = None
        if exc is None:
            self._silence(
                Silence(
                    "closed", "the destination closed the connection before the status line", ambiguous=True
                )
            )
        else:
            self._silence(
                Silence("reset", f"the connection broke before the status line: {exc}", ambiguous=True)
            )
        self._over()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of the parser."""
        if len(name) == 11 and name.lower() == b"retry-after":
            self._retry_after = value
        elif len(name) == 10 and name.lower() == b"keep-alive" and (match := _TIMEOUT.search(value)):
            self._idle_s = min(max(int(match[1]) - 1.0, 0.0), LONGEST_IDLE_S)

    def on_headers_complete(self) -> None:
        """Of the parser."""
        status = self._parser.get_status_code()
        if status < 200:
            return  # an interim answer, such as 103 Early Hints
        if self._final:
            self.close()  # a second answer to one request
            return
        self._final = True
        self._resolve(status)

    def on_body(self, body: bytes) -> None:
        """Of the parser."""
        self._body_bytes += len(body)
        if self._body_bytes > BODY_BYTES:
            self.close()

    def on_message_complete(self) -> None:
        """Of the parser."""
        if not self._final or not self.busy or self._transport is None:
            return
        # A destination that answers before it has read the request will not read the next one properly.
        if not self._parser.should_keep_alive() or self._transport.get_write_buffer_size():
            self.close()
            return
        self.idle_until_s = self._loop.time() + self._idle_s
        self._over()

    def _resolve(self, status: int) -> None:
        if self._answer is None:
            return
        now = now_us()
        if not self._answer.done():
            self._answer.set_result(Answer(status, retry_after_s(self._retry_after, now), now))
        self._answer = None
        assert self._timer is not None
        self._timer.cancel()
        self._timer = None

    def _silence(self, silence: Silence) -> None:
        """Nothing more will come."""
        if self._answer is None:
            return
        # What matters is the status line; headers that were cut short change nothing.
        match = _STATUS_LINE.search(self._head)
        if match is not None and not self._final:
            self._resolve(int(match[1]))
            return
        if not self._answer.done():
            self._answer.set_result(silence)
        self._answer = None

    def _late(self) -> None:
        # A process that was stopped wakes up with no news of its sockets, only with timers that are over (epoll ends
        # with EINTR, and its own time is over too). What came meanwhile is read before a timer that begins only now is
        # over; one of no time at all would not let the loop look at its sockets first.
        self._timer = self._loop.call_later(_LAST_LOOK_S, self._too_late)

    def _too_late(self) -> None:
        self._silence(Silence("timeout", "the destination sent no status line in time", ambiguous=True))
        self.close()

    def _fail(self, reason: str, detail: str) -> None:
        self._silence(Silence(reason, detail, ambiguous=True))
        self.close()

    def _over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.busy = False
        self._released(self)
