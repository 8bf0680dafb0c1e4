"""Makes aiokafka connect for pipes to allowed addresses only.

The bootstrap servers of a pipe are its author's choice, and so are the addresses that its brokers advertise. aiokafka
resolves names itself, so a connection of a pipe's client is made over a socket that is already connected to a judged
address. Clients of the mesh's own Kafka are not judged.
"""

import asyncio
import functools
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Self

from aiokafka.conn import AIOKafkaConnection

from hifi.runtime.egress import EgressKind, egress


class JudgedProtocol(str):
    """The security protocol of a client whose servers a pipe names."""

    __slots__ = ("pipe",)
    pipe: str | None

    def __new__(cls, protocol: str, pipe: str | None) -> Self:
        """A protocol.

        Args:
            protocol: name, as Kafka has it.
            pipe: for which the servers are judged; None: only entries for all pipes hold.
        """
        judged_protocol = super().__new__(cls, protocol)
        judged_protocol.pipe = pipe
        return judged_protocol


class _JudgedLoop:
    """The event loop, whose connections are made to judged addresses."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pipe: str | None) -> None:
        self._loop = loop
        self._pipe = pipe

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, factory: Any, host: str, port: int, *, ssl: Any = None) -> Any:
        sock = await egress(self._pipe).connected_socket(EgressKind.KAFKA, host, port)
        try:
            return await self._loop.create_connection(
                factory, sock=sock, ssl=ssl, server_hostname=host if ssl else None
            )
        except BaseException:
            sock.close()
            raise


async def open_stream(
    client: Any, host: str, port: int, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection to a broker of an aiokafka client, to a judged address where a pipe names its servers.

    Raises:
        OSError: no address is allowed, none accepts the connection, or TLS fails.
    """
    protocol = client._security_protocol  # noqa: SLF001
    if not isinstance(protocol, JudgedProtocol):
        return await asyncio.open_connection(host, port, ssl=context)
    sock = await egress(protocol.pipe).connected_socket(EgressKind.KAFKA, host, port)
    try:
        return await asyncio.open_connection(sock=sock, ssl=context, server_hostname=host)
    except BaseException:
        sock.close()
        raise


def apply() -> None:
    """Patch all aiokafka connections of this process; calling it again does nothing."""
    if not hasattr(AIOKafkaConnection.connect, "judges"):
        AIOKafkaConnection.connect = _with_judged_loop(AIOKafkaConnection.connect)


def _with_judged_loop(connect: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    @functools.wraps(connect)
    async def patched(self: Any) -> Any:
        if not isinstance(self._security_protocol, JudgedProtocol):
            return await connect(self)
        loop = self._loop
        self._loop = _JudgedLoop(loop, self._security_protocol.pipe)
        try:
            return await connect(self)
        finally:
            self._loop = loop

    patched.judges = True  # type: ignore[attr-defined]
    return patched
