"""A destination without any hifi code: a plain HTTP server that logs every request.

Run as a file: `python destination.py PORT LOG [HOST]`. Every POST is answered with 204. For each one, `LOG` gets a line
of JSON (`path`, `first_ns`, `answered_ns`, `bytes`, and `headers`: `traceparent` and those that start with `ce-`),
then the body and a line break. `GET /counts` returns the counts after flushing the log.
"""

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import httptools
import uvloop

FLUSH_S = 0.5
ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


class RequestLog:
    """Logs requests to a file and counts them by path. Times are wall time, nanoseconds since 1970 UTC."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.arrivals: dict[str, int] = {}

    def add(self, path: str, first_ns: int, headers: dict[str, str], body: bytes) -> None:
        """Log a request that has just been answered."""
        self.arrivals[path] = self.arrivals.get(path, 0) + 1
        line = {
            "path": path,
            "first_ns": first_ns,
            "answered_ns": time.time_ns(),
            "headers": headers,
            "bytes": len(body),
        }
        self._file.write(json.dumps(line).encode() + b"\n" + body + b"\n")

    def counts(self) -> bytes:
        """Flush the log and return the counts as JSON."""
        self._file.flush()
        return json.dumps({"arrivals": sum(self.arrivals.values()), "by_path": self.arrivals}).encode()

    def flush(self) -> None:
        """Write buffered requests to the file."""
        self._file.flush()


class RequestLogConnection(asyncio.Protocol):
    """One HTTP connection with any number of sequential requests."""

    def __init__(self, log: RequestLog) -> None:
        self._log = log
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._first_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._first_ns = self._first_ns or time.time_ns()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_begin(self) -> None:
        """See httptools."""
        self._first_ns = self._first_ns or time.time_ns()
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        """See httptools."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        lower_name = name.lower()
        if lower_name.startswith(b"ce-") or lower_name == b"traceparent":
            self._headers[lower_name.decode()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        if self._parser.get_method() == b"GET":
            page = self._log.counts()
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(page) + page)
        else:
            self._transport.write(ANSWER)
            self._log.add(self._url.decode(), self._first_ns, self._headers, b"".join(self._body))
        if not self._parser.should_keep_alive():
            self._transport.close()
        self._first_ns = 0


async def serve(
    host: str,
    port: int,
    file: BinaryIO,
    connection: Callable[[RequestLog], asyncio.Protocol] = RequestLogConnection,
) -> None:
    """Serve until SIGTERM."""
    log = RequestLog(file)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(lambda: connection(log), host, port, backlog=1024)
    async with server:
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_S):
                    await stop.wait()
            log.flush()


def main() -> None:
    """Run `destination.py PORT LOG [HOST]`."""
    port, log, host = int(sys.argv[1]), sys.argv[2], (sys.argv[3:] or ["127.0.0.1"])[0]
    with (
        Path(log).open("ab", buffering=1 << 20) as file,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(serve(host, port, file))


if __name__ == "__main__":
    main()
