"""Asks a service's health pages, with nothing but a socket."""

import asyncio
from dataclasses import dataclass, field

import orjson


@dataclass(frozen=True, slots=True)
class Readiness:
    """What /readyz said."""

    ready: bool
    state: str
    """One word: starting, running, standby, draining; `down` when nothing answers."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Condition that does not hold yet to the reason, one sentence for a person."""


STOPPED = Readiness(False, "stopped")
NO_ANSWER = Readiness(False, "down", {"process": "its health page does not answer yet"})


async def get(port: int, path: str, *, timeout_s: float = 2.0) -> tuple[int, bytes]:
    """Status and body of a page of 127.0.0.1.

    Raises:
        OSError: nobody answers in time, or not with HTTP.
    """
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
                answer = await reader.read()
            finally:
                writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), body
    except (TimeoutError, ValueError, IndexError) as error:
        raise OSError(f"127.0.0.1:{port}{path} gives no answer") from error


async def readiness(port: int) -> Readiness:
    """What the service with its health pages on this port waits for."""
    try:
        status, body = await get(port, "/readyz")
        page = orjson.loads(body)
        return Readiness(status == 200, str(page["state"]), dict(page["waiting"]))
    except (OSError, ValueError, KeyError, TypeError):
        return NO_ANSWER
