"""Resolve host names: one look-up in flight per name, in threads of their own."""

import asyncio
import copy
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias

from hifi.runtime.egress import Egress, EgressKind, egress

THREADS: Final = 32
"""Look-ups of different names at a time. A name whose servers do not answer holds a thread for as long as the system's
resolver waits, 10 s with glibc's defaults."""

Addresses: TypeAlias = Sequence[tuple[int, int, int, str, Any]]
"""As `socket.getaddrinfo` returns them."""


class NameResolver:
    """Resolves the names of all destinations of a process.

    Every lane waits for at most one look-up of its name, also if many of its requests need a connection and time out
    meanwhile: a time-out ends the wait, not the look-up, and the next request joins it.
    """

    def __init__(
        self, look_up: Callable[..., Addresses] = socket.getaddrinfo, allowed: Egress | None = None
    ) -> None:
        """Start without look-ups.

        Args:
            look_up: blocks; with the arguments of `socket.getaddrinfo`.
            allowed: judges the addresses; None: as the environment says of no pipe.

        Raises:
            Misconfigured: the environment's allowlist is wrong.
        """
        self._allowed = egress(None) if allowed is None else allowed
        self._look_up = look_up
        self._threads = ThreadPoolExecutor(THREADS, "name-resolver")
        self._in_flight: dict[str, asyncio.Future[Addresses]] = {}

    def for_pipe(self, pipe: str) -> "NameResolver":
        """A resolver for the destinations of a pipe: it shares the look-ups, and judges their answers for that pipe."""
        resolver = copy.copy(self)
        resolver._allowed = self._allowed.for_pipe(pipe)  # noqa: SLF001 - a copy of itself
        return resolver

    async def addresses(self, host: str, port: int) -> Addresses:
        """The addresses of a host to which a connection may be made.

        Args:
            host: name or address.
            port: set in the addresses.

        Raises:
            socket.gaierror: the name has no address.
            EgressRefused: none of its addresses is allowed.
        """
        return self._allowed.usable(EgressKind.HTTP, host, port, await self._resolved(host, port))

    async def behind_proxy(self, host: str, port: int) -> str:
        """The host that a proxy is asked to connect to: a judged address, or the name if the operator allows the name.

        Raises:
            socket.gaierror: the name has no address here.
            EgressRefused: none of its addresses is allowed.
        """
        if self._allowed.allows_host(EgressKind.HTTP, host, port):
            return host
        addresses = await self.addresses(host, port)
        return str(addresses[0][4][0])

    async def _resolved(self, host: str, port: int) -> Addresses:
        flags = socket.AI_NUMERICHOST
        try:
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)  # needs no look-up
        except socket.gaierror:
            pass
        look_up = self._in_flight.get(host)
        if look_up is None:
            look_up = asyncio.get_running_loop().run_in_executor(
                self._threads, lambda: self._look_up(host, 0, type=socket.SOCK_STREAM)
            )
            self._in_flight[host] = look_up
            look_up.add_done_callback(lambda future: self._look_up_ended(host, future))
        addresses = await asyncio.shield(look_up)
        return [(*address[:4], (address[4][0], port, *address[4][2:])) for address in addresses]

    def _look_up_ended(self, host: str, look_up: asyncio.Future[Addresses]) -> None:
        del self._in_flight[host]
        if not look_up.cancelled():
            look_up.exception()  # every waiter may have timed out
