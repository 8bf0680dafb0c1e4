"""Serving HTTP inside a service's own event loop."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from hifi.errors import Misconfigured
from hifi.http import limits as http_limits

_LIMITS: Final = http_limits.Limits()


class _Server(uvicorn.Server):
    """Leaves signals to the service, which drains in its own order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening socket; `shared`: several processes listen on the same port and share the connections.

    Raises:
        Misconfigured: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind((host, port))
        sock.listen(2048)
    except OSError as error:
        sock.close()
        raise Misconfigured(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another port or stop what holds it"
        ) from None
    sock.setblocking(False)
    return sock


@contextlib.asynccontextmanager
async def serve(
    app: ASGIApp,
    sock: socket.socket,
    *,
    drain_s: float = 5,
    limits: http_limits.Limits = _LIMITS,
    refused: Callable[[int], None] = lambda _: None,
) -> AsyncIterator[None]:
    """Serve an ASGI app while the block runs; on leaving, running requests are finished.

    Args:
        app: what answers.
        sock: from `listen`; it is closed in the end.
        drain_s: bound on finishing, seconds.
        limits: of a connection.
        refused: told the status of each request that never reached the app.
    """
    limits = replace(limits, connections=min(limits.connections, http_limits.room_for_connections()))
    config = uvicorn.Config(
        app,
        loop="none",
        http=http_limits.guarded(limits, refused),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,  # above that of common connection pools, else their reuse races our close
        timeout_graceful_shutdown=int(drain_s) or 1,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    sweeper = asyncio.create_task(http_limits.sweep(server.server_state.connections))  # type: ignore[arg-type]
    try:
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        yield
    finally:
        server.should_exit = True
        await task
        sweeper.cancel()
        sock.close()
