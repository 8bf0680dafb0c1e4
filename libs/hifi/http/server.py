"""Run an HTTP server in the event loop of a service: uvicorn with connection limits."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from hifi.errors import Misconfigured
from hifi.http.limits import ConnectionLimits, limited_connection, raise_open_files_limit, sweep

_LIMITS: Final = ConnectionLimits()


class _Server(uvicorn.Server):
    """Does not handle signals: the service drains in its own order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Open a listening socket.

    Args:
        host: address, IPv4 or IPv6.
        port: 0: any free one.
        shared: several processes may listen on the port, and the kernel distributes connections (SO_REUSEPORT).

    Raises:
        Misconfigured: the address is in use or not available.
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
            f"cannot listen on {host}:{port}: {error.strerror}; choose another port or stop the process that uses it"
        ) from None
    sock.setblocking(False)
    return sock


@contextlib.asynccontextmanager
async def serve(
    app: ASGIApp,
    sock: socket.socket,
    *,
    drain_s: float = 5,
    limits: ConnectionLimits = _LIMITS,
    on_refused: Callable[[int], None] = lambda _: None,
) -> AsyncIterator[None]:
    """Serve an ASGI app while the block runs, and finish running requests at its end.

    Args:
        app: the ASGI app.
        sock: from `listen`; closed at the end.
        drain_s: longest time to finish running requests, seconds.
        limits: of connections; their number is also limited by the number of files that the process may open.
        on_refused: called with the status of each request that was refused before it reached the app.
    """
    limits = replace(limits, connections=min(limits.connections, raise_open_files_limit()))
    config = uvicorn.Config(
        app,
        loop="none",
        http=limited_connection(limits, on_refused),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,  # longer than common connection pools keep theirs: no reuse of a connection being closed
        timeout_graceful_shutdown=int(drain_s) or 1,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    sweeper = asyncio.create_task(sweep(server.server_state.connections))  # type: ignore[arg-type]
    try:
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        yield
    finally:
        server.should_exit = True
        await task
        sweeper.cancel()
        sock.close()
