"""A sender that knows nothing of hifi: posts CloudEvents at a steady rate and keeps books of every answer.

Run as a file: `python sender.py URL RATE EVENTS BOOKS`, the key in the variable KEY. `EVENTS` holds a JSON object
with an `id` a line. Open loop: each event has its moment, whether or not the ones before were answered. `BOOKS` gets
a line for each: id, when it was due, when it was sent, when it was answered (wall time, nanoseconds since 1970
UTC), status (0: no answer), with tabs between.
"""

import asyncio
import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import SplitResult, urlsplit

import httptools
import uvloop

MOST_CONNECTIONS = 128
ANSWER_S = 30.0
"""Without an answer for so long an event's fate is unknown, and the sender ends."""


@dataclass(slots=True)
class Sending:
    """One event on its way. Times in nanoseconds since 1970 UTC."""

    id: str
    request: bytes
    due_ns: int
    sent_ns: int = 0


class Connection(asyncio.Protocol):
    """One connection with at most one request on it."""

    def __init__(self, sender: "Sender") -> None:
        self._sender = sender
        self._parser: Any = None
        self._transport: Any = None
        self._sending: Sending | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = transport

    def send(self, sending: Sending) -> None:
        """Send one; the connection is busy until the answer."""
        self._parser = httptools.HttpResponseParser(self)
        self._sending = sending
        sending.sent_ns = time.time_ns()
        self._transport.write(sending.request)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_complete(self) -> None:
        """See httptools."""
        sending, self._sending = self._sending, None
        if sending is not None:
            self._sender.answered(sending, self._parser.get_status_code())
        if self._parser.should_keep_alive():
            self._sender.free(self)
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """See asyncio.Protocol."""
        sending, self._sending = self._sending, None
        if sending is not None:
            self._sender.answered(sending, 0)
        self._sender.gone(self)


class Sender:
    """Sends on as many connections as it takes, up to a bound."""

    def __init__(self, url: SplitResult, books: TextIO) -> None:
        self._url = url
        self._books = books
        self._idle: list[Connection] = []
        self._waiting: deque[Sending] = deque()
        self._connections = 0
        self._opening: set[asyncio.Task[None]] = set()
        self.open = 0
        """Events without an answer yet."""

    def send(self, sending: Sending) -> None:
        """Send one as soon as a connection is free."""
        self.open += 1
        if self._idle:
            self._idle.pop().send(sending)
            return
        self._waiting.append(sending)
        if self._connections < MOST_CONNECTIONS:
            self._connections += 1
            task = asyncio.create_task(self._connect())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def free(self, connection: Connection) -> None:
        """A connection can take the next one."""
        if self._waiting:
            connection.send(self._waiting.popleft())
        else:
            self._idle.append(connection)

    def gone(self, connection: Connection) -> None:
        """A connection is closed."""
        self._connections -= 1
        if connection in self._idle:
            self._idle.remove(connection)

    def answered(self, sending: Sending, status: int) -> None:
        """Write the books."""
        self.open -= 1
        line = (sending.id, sending.due_ns, sending.sent_ns, time.time_ns(), status)
        self._books.write("\t".join(map(str, line)) + "\n")

    async def _connect(self) -> None:
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(self), self._url.hostname or "", self._url.port or 80
            )
        except OSError:
            self._connections -= 1
            if self._waiting:
                self.answered(self._waiting.popleft(), 0)
            return
        self.free(connection)


def requests(url: SplitResult, key: str, lines: Iterator[str]) -> Iterator[tuple[str, bytes, bytes]]:
    """Id, head up to the event's time, and body of each event, in CloudEvents' binary mode."""
    for line in lines:
        body = line.strip().encode()
        event = json.loads(body)
        head = (
            f"POST {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"ce-specversion: 1.0\r\nce-id: {event['id']}\r\nce-source: /flights\r\nce-type: flight\r\n"
            f"ce-partitionkey: {event.get('tailnum') or event['id']}\r\nce-time: "
        )
        yield event["id"], head.encode(), body


async def run(url: SplitResult, rate: float, lines: Iterator[str], books: TextIO) -> None:
    """Send every line at its moment, then wait for the last answers."""
    sender = Sender(url, books)
    start_ns, start_s = time.time_ns(), time.monotonic()
    for index, (name, head, body) in enumerate(requests(url, os.environ["KEY"], lines)):
        due_s = index / rate
        while (early_s := start_s + due_s - time.monotonic()) > 0:
            await asyncio.sleep(early_s)
        now = datetime.now(UTC).isoformat().encode()
        due_ns = start_ns + int(due_s * 1e9)
        sender.send(Sending(name, head + now + b"\r\n\r\n" + body, due_ns))
        if index % 64 == 0:
            await asyncio.sleep(0)
            books.flush()
    end_s = time.monotonic() + ANSWER_S
    while sender.open and time.monotonic() < end_s:
        await asyncio.sleep(0.02)


def main() -> None:
    """`sender.py URL RATE EVENTS BOOKS`."""
    url, rate, events, written = sys.argv[1:5]
    with (
        Path(events).open() as lines,
        Path(written).open("w", buffering=1 << 16) as books,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(run(urlsplit(url), float(rate), iter(lines), books))


if __name__ == "__main__":
    main()
