"""The connections of one lane: kept open for reuse, limited in number, closed when they are idle for too long.

After bytes that answer no request, no connection is reused.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import aiohappyeyeballs

from hifi.delivery.answer import NoResponse
from hifi.runtime.egress import EgressRefused
from hifi_http.destination.connection import DestinationConnection
from hifi_http.destination.name_resolver import Addresses, NameResolver
from hifi_http.destination.route import ProxyRefused, Route, open_tunnel

_NAMES_S: Final = 10.0
"""Time for which a resolved address is used for new connections, seconds."""
_EYEBALLS_S: Final = 0.25
"""Time after which the next address is tried in parallel to one that does not answer, seconds (RFC 8305)."""
_REST_S: Final = 0.02
"""Maximum time that a request waits for the rest of an earlier answer, seconds: about the cost of a new connection.
Servers that write head and body separately have usually finished by then; a body that never ends costs no more."""


class Connected(NamedTuple):
    """A connection for one request. `timeout_s`: what is left of the time-out, seconds."""

    connection: DestinationConnection
    timeout_s: float


class ConnectionPool:
    """Connections to one origin."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        size: int,
        resolver: NameResolver,
        on_stray_bytes: Callable[[], None] = lambda: None,
    ) -> None:
        """Create an empty pool; the first request opens the first connection.

        Args:
            host: name or address, without brackets.
            port: number.
            tls: for https, else None.
            size: maximum number of connections; callers make at most as many requests at a time.
            resolver: of the process.
            on_stray_bytes: called for bytes from the destination that answer no request. Such bytes can be taken for
                the answer to the next request, so that from then on each request gets a connection of its own.
        """
        self._loop = asyncio.get_running_loop()
        self._host = host
        self._port = port
        self.route = Route(tls)
        self._size = size
        self._resolver = resolver
        self._all: set[DestinationConnection] = set()
        self._idle: list[DestinationConnection] = []
        self._connecting = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._addresses: Addresses = []
        self._resolved_s = float("-inf")
        self._closed = False
        self._on_stray_bytes = on_stray_bytes
        self._reuses = True

    async def connect(self, timeout_s: float) -> Connected | NoResponse:
        """Take a free connection or open one; `request` of the connection, or `release`, follows at once.

        Args:
            timeout_s: from connecting to the status line, seconds; a short wait for a free connection comes before.
        """
        connection = self._reusable() or await self._freed()
        if connection is not None:
            return Connected(connection, timeout_s)
        began_s = self._loop.time()
        opened_connection = await self._open_in_time(timeout_s)
        if isinstance(opened_connection, NoResponse):
            return opened_connection
        return Connected(opened_connection, timeout_s - (self._loop.time() - began_s))

    def release(self, connection: DestinationConnection) -> None:
        """Give back a connection that sent no request."""
        self._released(connection)

    def use(self, route: Route) -> None:
        """Open connections in another way from now on; those that are open stay."""
        if route.proxy != self.route.proxy:
            self._resolved_s = float("-inf")
        self.route = route

    def sweep(self) -> None:
        """Close connections that were idle for too long."""
        now_s = self._loop.time()
        expired_connections = [connection for connection in self._idle if connection.idle_until_s <= now_s]
        for connection in expired_connections:
            connection.close()

    def close(self) -> None:
        """Close all connections; requests in flight finish first."""
        self._closed = True
        for connection in list(self._all):
            if not connection.busy or connection.answered:
                connection.close()

    def _reusable(self) -> DestinationConnection | None:
        now_s = self._loop.time()
        while self._idle:
            connection = self._idle.pop()  # the most recently used one, so that surplus connections expire
            if now_s >= connection.idle_until_s:
                connection.close()
            elif connection.clean:
                return connection
            else:
                connection.retire()
        return None

    async def _freed(self) -> DestinationConnection | None:
        """Wait briefly for a connection whose answer is nearly read; None: open another one instead."""
        ends_s = self._loop.time() + _REST_S
        while self._excess() and any(connection.answered for connection in self._all):
            left_s = ends_s - self._loop.time()
            if left_s <= 0:
                return None
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            timer = self._loop.call_later(left_s, _wake, waiter)
            await waiter
            timer.cancel()
            connection = self._reusable()
            if connection is not None:
                return connection
        return None

    def _excess(self) -> int:
        """Connections to close before another one may be opened."""
        return max(0, len(self._all) + self._connecting - self._size + 1)

    async def _open_in_time(self, timeout_s: float) -> DestinationConnection | NoResponse:
        # These only read the rest of an answer, which is not needed.
        answered_connections = [connection for connection in self._all if connection.answered]
        for connection in answered_connections[: self._excess()]:
            self._all.discard(connection)
            connection.close()
        self._connecting += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await self._open()
        except (OSError, UnicodeError) as error:  # UnicodeError: a part of the name is empty or too long
            return self._failure(error)
        finally:
            self._connecting -= 1

    def _failure(self, error: OSError | UnicodeError) -> NoResponse:
        """The reason why no connection could be opened. Nothing was sent to the destination."""
        proxy = self.route.proxy
        side = "destination" if proxy is None else "proxy"
        if isinstance(error, TimeoutError):
            reason, detail = "connect", f"the {side} accepted no connection in time"
        elif isinstance(error, socket.gaierror | UnicodeError):
            host_names = self._host if proxy is None else f"{proxy.host} or {self._host}"
            why = error.strerror if isinstance(error, socket.gaierror) else "no resolver looks up such a name"
            reason, detail = "dns", f"the name {host_names} has no address: {why}"
        elif isinstance(error, ssl.SSLError):
            reason, detail = "tls", f"the TLS handshake with the destination failed: {error.reason or error}"
        elif isinstance(error, EgressRefused):
            reason, detail = "egress", str(error)
        elif isinstance(error, ProxyRefused):
            reason, detail = "proxy", str(error)
        else:
            self._resolved_s = float("-inf")
            reason = "connect" if proxy is None else "proxy"
            detail = f"the {side} accepts no connection: {error.strerror or error}"
        return NoResponse(reason, detail, ambiguous=False)

    async def _open(self) -> DestinationConnection:
        now_s = self._loop.time()
        tls, proxy = self.route
        host, port = (self._host, self._port) if proxy is None else (proxy.host, proxy.port)
        if now_s - self._resolved_s > _NAMES_S:
            self._addresses = await self._resolver.addresses(host, port)
            self._resolved_s = self._loop.time()
        sock = await aiohappyeyeballs.start_connection(
            self._addresses, happy_eyeballs_delay=_EYEBALLS_S, interleave=1, loop=self._loop
        )
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if proxy is not None:
                tunnel_host = await self._resolver.behind_proxy(self._host, self._port)
                await open_tunnel(sock, proxy, tunnel_host, self._port)
            _, connection = await self._loop.create_connection(
                lambda: DestinationConnection(self._released, self._end_reuse),
                sock=sock,
                ssl=tls,
                server_hostname=self._host if tls else None,
            )
        except BaseException:
            sock.close()
            raise
        self._all.add(connection)
        return connection

    def _end_reuse(self) -> None:
        self._reuses = False
        for connection in list(self._idle):
            connection.close()
        self._on_stray_bytes()

    def _released(self, connection: DestinationConnection) -> None:
        if not connection.open:
            self._all.discard(connection)
            if connection in self._idle:
                self._idle.remove(connection)
        elif self._closed or not self._reuses:
            connection.close()
        else:
            if not connection.idle_until_s:
                connection.idle_until_s = self._loop.time() + 1.0  # newly opened and not used
            self._idle.append(connection)
        while self._waiters and not _wake(self._waiters.popleft()):
            pass  # that waiter has timed out


def _wake(waiter: asyncio.Future[None]) -> bool:
    """Wake a waiter; returns whether it was still waiting."""
    if waiter.done():
        return False
    waiter.set_result(None)
    return True
