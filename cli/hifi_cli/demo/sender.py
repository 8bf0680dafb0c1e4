"""A sender without any hifi code: posts CloudEvents at a steady rate and logs every answer.

Run as a file: `python sender.py URL RATE EVENTS LOG [BATCH [CONNECTIONS]]`, with the write key in the environment
variable KEY. `EVENTS` holds one JSON object with an `id` a line. The load is open-loop: each request has a scheduled
time, whether or not earlier ones have been answered; with a rate of `inf` all are due immediately. `BATCH` events
(default 1) are sent in one request and are due together. At most `CONNECTIONS` (default 1,024) are open. `LOG` gets a
tab-separated line for each event: id, due time, sent time, answered time (wall time, nanoseconds since 1970 UTC) and
status (0: no answer). The last line of standard output is JSON with the sender's own delay (`late_max_ms`, and
`late_share`: the share of requests sent more than 50 ms late) and its `cpu_seconds`.
"""

import asyncio
import json
import math
import os
import resource
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import SplitResult, urlsplit

import httptools
import uvloop

CONNECTIONS = 1024
"""Most connections, unless told otherwise. With answers after 0.3 s they carry 3,400 requests a second."""
OPEN_AHEAD_S = 0.25
"""Connections for the requests of this many seconds are opened in advance, as real clients pool them."""
OPENING = 16
"""Connections opened concurrently. Hundreds at once would lose some of their first packets."""
ANSWER_S = 30.0
"""How long to wait for the last answers; after that the outcome of an event is unknown."""
LATE_NS = 50_000_000
WAKE_UP_S = 0.002
"""Minimum time between two wake-ups. Waking up for each request would cost more than sending it."""
TIME_BYTES = len("2026-01-01T00:00:00.000000+00:00")


@dataclass(slots=True)
class ScheduledRequest:
    """One request with its scheduled time. Times in nanoseconds since 1970 UTC."""

    ids: Sequence[str]
    request: bytes
    due_ns: int
    sent_ns: int = 0


class SenderConnection(asyncio.Protocol):
    """One HTTP connection with at most one request in flight."""

    def __init__(self, sender: "LoadSender") -> None:
        self._sender = sender
        self._parser: Any = None
        self._transport: Any = None
        self._scheduled_request: ScheduledRequest | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = transport

    def send(self, scheduled_request: ScheduledRequest) -> None:
        """Send a request; the connection is busy until the answer."""
        self._parser = httptools.HttpResponseParser(self)
        self._scheduled_request = scheduled_request
        scheduled_request.sent_ns = time.time_ns()
        self._transport.write(scheduled_request.request)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_complete(self) -> None:
        """See httptools."""
        scheduled_request, self._scheduled_request = self._scheduled_request, None
        if scheduled_request is not None:
            self._sender.answered(scheduled_request, self._parser.get_status_code())
        if self._parser.should_keep_alive():
            self._sender.free(self)
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """See asyncio.Protocol."""
        scheduled_request, self._scheduled_request = self._scheduled_request, None
        if scheduled_request is not None:
            self._sender.answered(scheduled_request, 0)
        self._sender.gone(self)


class LoadSender:
    """Sends requests on as many connections as needed, up to `most`."""

    def __init__(self, url: SplitResult, log: TextIO, max_connections: int) -> None:
        self._url = url
        self._log = log
        self._max_connections = max_connections
        self._idle_connections: deque[SenderConnection] = deque()
        """The longest idle first: a server may close an idle connection just when it is used again."""
        self._waiting_requests: deque[ScheduledRequest] = deque()
        self._connections = 0
        self._opening: set[asyncio.Task[None]] = set()
        self.open = 0
        """Number of requests without an answer."""

    def send(self, scheduled_request: ScheduledRequest) -> None:
        """Send a request as soon as a connection is free."""
        self.open += 1
        if self._idle_connections:
            self._idle_connections.popleft().send(scheduled_request)
            return
        self._waiting_requests.append(scheduled_request)
        self._open()

    async def open_ahead(self, count: int) -> None:
        """Open `count` connections; stop when one is refused."""
        for opened_count in range(count):
            self._connections += 1
            await self._connect()
            if self._connections <= opened_count:
                return

    def free(self, connection: SenderConnection) -> None:
        """Use a connection for the next request, or keep it idle."""
        if self._waiting_requests:
            connection.send(self._waiting_requests.popleft())
        else:
            self._idle_connections.append(connection)

    def gone(self, connection: SenderConnection) -> None:
        """Forget a closed connection."""
        self._connections -= 1
        if connection in self._idle_connections:
            self._idle_connections.remove(connection)

    def answered(self, scheduled_request: ScheduledRequest, status: int) -> None:
        """Log the answer to a request."""
        self.open -= 1
        columns = f"\t{scheduled_request.due_ns}\t{scheduled_request.sent_ns}\t{time.time_ns()}\t{status}\n"
        self._log.writelines(name + columns for name in scheduled_request.ids)

    def _open(self) -> None:
        """Open one more connection if a request is waiting for one."""
        if (
            self._waiting_requests
            and self._connections < self._max_connections
            and len(self._opening) < OPENING
        ):
            self._connections += 1
            task = asyncio.create_task(self._connect())
            self._opening.add(task)
            task.add_done_callback(self._on_opened)

    def _on_opened(self, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        self._open()

    async def _connect(self) -> None:
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: SenderConnection(self), self._url.hostname or "", self._url.port or 80
            )
        except OSError:
            self._connections -= 1
            if self._waiting_requests:
                self.answered(self._waiting_requests.popleft(), 0)
            return
        self.free(connection)


def requests(
    url: SplitResult, key: str, lines: Iterator[str], batch: int
) -> Iterator[tuple[list[str], list[bytes]]]:
    """Return ids and text of each request. The time of the events is inserted between the pieces of the text."""
    for first_line in lines:
        bodies = [line.strip() for line in (first_line, *islice(lines, batch - 1))]
        events = [json.loads(body) for body in bodies]
        make_request = _single if batch == 1 else _batch
        yield [event["id"] for event in events], make_request(url, key, events, bodies)


def _single(url: SplitResult, key: str, events: Sequence[Any], bodies: Sequence[str]) -> list[bytes]:
    """Make the text of a request with one event in CloudEvents binary mode."""
    event, body = events[0], bodies[0].encode()
    head = (
        f"{_head(url, key)}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"ce-specversion: 1.0\r\nce-id: {event['id']}\r\nce-source: /flights\r\nce-type: flight\r\n"
        f"ce-partitionkey: {_key(event)}\r\nce-time: "
    )
    return [head.encode(), b"\r\n\r\n" + body]


def _batch(url: SplitResult, key: str, events: Sequence[Any], bodies: Sequence[str]) -> list[bytes]:
    """Make the text of a request with a CloudEvents batch."""
    envelopes = (
        f'{{"specversion":"1.0","id":{json.dumps(event["id"])},"source":"/flights","type":"flight",'
        f'"partitionkey":{json.dumps(_key(event))},"data":{body},"time":"'
        for event, body in zip(events, bodies, strict=True)
    )
    segments = ("[" + '"},'.join(f"{envelope}\0" for envelope in envelopes) + '"}]').encode().split(b"\0")
    length = sum(map(len, segments)) + TIME_BYTES * len(events)
    kind = "Content-Type: application/cloudevents-batch+json"
    segments[0] = f"{_head(url, key)}{kind}\r\nContent-Length: {length}\r\n\r\n".encode() + segments[0]
    return segments


def _head(url: SplitResult, key: str) -> str:
    return f"POST {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\nAuthorization: Bearer {key}\r\n"


def _key(event: Any) -> str:
    return str(event.get("tailnum") or event["id"])


async def run(
    url: SplitResult, rate: float, lines: Iterator[str], log: TextIO, batch: int, connections: int
) -> None:
    """Send every event at its scheduled time, or until SIGTERM, then wait for the last answers."""
    sender = LoadSender(url, log, connections)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await sender.open_ahead(math.ceil(min(rate / batch * OPEN_AHEAD_S, connections)))
    count = late_count = latest_ns = 0
    start_ns, start_s, cpu_s = time.time_ns(), time.monotonic(), time.process_time()
    for ids, segments in requests(url, os.environ["KEY"], lines, batch):
        if stop.is_set():
            break
        due_s = count * batch / rate
        while (early_s := start_s + due_s - time.monotonic()) > 0:
            await asyncio.sleep(max(early_s, WAKE_UP_S))
        time_text = datetime.now(UTC).isoformat(timespec="microseconds").encode()
        due_ns = start_ns + int(due_s * 1e9)
        sender.send(ScheduledRequest(ids, time_text.join(segments), due_ns))
        late_ns = time.time_ns() - due_ns
        latest_ns, late_count = max(latest_ns, late_ns), late_count + (late_ns > LATE_NS)
        count += 1
        if count % 64 == 1:
            await asyncio.sleep(0)
            log.flush()
    end_s = time.monotonic() + ANSWER_S
    while sender.open and time.monotonic() < end_s:
        await asyncio.sleep(0.02)
    lateness = {"late_max_ms": latest_ns / 1e6, "late_share": late_count / max(count, 1)}
    print(json.dumps(lateness | {"cpu_seconds": time.process_time() - cpu_s}))


def main() -> None:
    """Run `sender.py URL RATE EVENTS LOG [BATCH [CONNECTIONS]]`."""
    url, rate, events, log_path = sys.argv[1:5]
    options = [int(number) for number in sys.argv[5:]]
    batch, connections = options[0] if options else 1, options[1] if options[1:] else CONNECTIONS
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # a connection is a file
    with (
        Path(events).open() as lines,
        Path(log_path).open("w", buffering=1 << 16) as log,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(run(urlsplit(url), float(rate), iter(lines), log, batch, connections))


if __name__ == "__main__":
    main()
