"""Requests the health pages of a service, over a plain socket."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import orjson

LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Readiness:
    """The answer of /readyz."""

    ready: bool
    state: str
    """One word: starting, running, standby, draining; `down` when there is no answer."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Conditions that are not met yet, each with its reason as one sentence."""


STOPPED = Readiness(False, "stopped")
NO_ANSWER = Readiness(False, "down", {"process": "its health page does not answer yet"})


async def get(
    port: int,
    path: str,
    *,
    host: str = LOOPBACK,
    timeout_s: float = 2.0,
) -> tuple[int, bytes]:
    """Request a page: its status and body.

    Raises:
        OSError: no answer in time, or not an HTTP answer.
    """
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode())
                answer = await reader.read()
            finally:
                writer.close()
        answer_head, _, body = answer.partition(b"\r\n\r\n")
        return int(answer_head.split(b" ", 2)[1]), body
    except (TimeoutError, ValueError, IndexError) as error:
        raise OSError(f"{host}:{port}{path} gives no answer") from error


async def readiness(port: int, host: str = LOOPBACK) -> Readiness:
    """The readiness of the service with its health pages on this port."""
    try:
        status, body = await get(port, "/readyz", host=host)
        page = orjson.loads(body)
        return Readiness(status == 200, str(page["state"]), dict(page["waiting"]))
    except (OSError, ValueError, KeyError, TypeError):
        return NO_ANSWER
