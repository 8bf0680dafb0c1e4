"""Run an HTTP server in the event loop of a service: uvicorn with connection limits."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from hifi.runtime.errors import Misconfigured
from hifi.runtime.http.limits import ConnectionLimits, Gate, limited_connection, raise_open_files_limit, sweep
from hifi.runtime.http.listener import accepting
from hifi.runtime.http.tls import HSTS, ServerCertificate

_LIMITS: Final = ConnectionLimits()
_BACKLOG: Final = 4096
"""Connections that wait to be accepted. What exceeds it is dropped by the kernel and tried again by the client, later
each time: half a minute for the last ones of a flood. Linux allows 4,096 by default (`net.core.somaxconn`)."""


class _Server(uvicorn.Server):
    """Does not handle signals, as the service drains in its own order, and does not accept connections itself."""

    def new_connection(self) -> asyncio.Protocol:
        """The protocol of a connection."""
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

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
        sock.listen(_BACKLOG)
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
    gate: Gate = lambda *_: None,
    certificate: ServerCertificate | None = None,
) -> AsyncIterator[None]:
    """Serve an ASGI app while the block runs, and finish running requests at its end.

    Args:
        app: the ASGI app.
        sock: from `listen`; closed at the end.
        drain_s: longest time to finish running requests, seconds.
        limits: of connections; their number is also limited by the number of files that the process may open.
        on_refused: called with the status of each request that was refused for a limit, before it reached the app.
        gate: refuses further requests before they reach the app.
        certificate: for TLS; followed while the block runs. None: plain HTTP.
    """
    limits = replace(limits, connections=min(limits.connections, raise_open_files_limit()))
    config = uvicorn.Config(
        app,
        loop="none",
        http=limited_connection(limits, on_refused, gate),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        headers=[HSTS] if certificate else [],
        timeout_keep_alive=75,  # longer than common connection pools keep theirs: no reuse of a connection being closed
        timeout_graceful_shutdown=int(drain_s) or 1,
    )
    server = _Server(config)
    server_task = asyncio.create_task(server.serve(sockets=[]))
    background_tasks = [asyncio.create_task(sweep(server.server_state.connections))]  # type: ignore[arg-type]
    if certificate is not None:
        background_tasks.append(asyncio.create_task(certificate.follow()))
    try:
        while not server.started and not server_task.done():
            await asyncio.sleep(0.005)
        tls = None if certificate is None else (lambda: certificate.context)
        with accepting(sock, server.new_connection, tls, limits.connections):
            yield
    finally:
        sock.close()
        server.should_exit = True
        await server_task
        for background_task in background_tasks:
            background_task.cancel()
