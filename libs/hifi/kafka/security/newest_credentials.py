"""Makes aiokafka read password and certificates again for each connection that it opens, and notes the broker's.

aiokafka keeps what a client was made with. A client that lives for months would fail to connect again once its password
or certificate has been replaced.
"""

import functools
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from aiokafka.conn import AIOKafkaConnection

from hifi.kafka.security.judged_brokers import JudgedProtocol
from hifi.runtime.certificates import BROKER, IN_USE


class RereadPassword(str):
    """A password that can be read again."""

    __slots__ = ("reread",)
    reread: Callable[[], str]


_remake: Final[MutableMapping[ssl.SSLContext, Callable[[], ssl.SSLContext]]] = WeakKeyDictionary()


def password(read: Callable[[], str]) -> RereadPassword:
    """A password that each new connection reads again."""
    reread_password = RereadPassword(read())
    reread_password.reread = read
    return reread_password


def context(make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """A TLS context that each new connection makes again."""
    ssl_context = make()
    _remake[ssl_context] = make
    return ssl_context


def apply() -> None:
    """Patch all aiokafka connections of this process; calling it again does nothing."""
    if not hasattr(AIOKafkaConnection.connect, "__wrapped__"):
        AIOKafkaConnection.connect = _with_newest(AIOKafkaConnection.connect)


def _with_newest(connect: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    @functools.wraps(connect)
    async def patched(self: Any) -> Any:
        if isinstance(self._sasl_plain_password, RereadPassword):
            self._sasl_plain_password = self._sasl_plain_password.reread()
        if self._ssl_context in _remake:
            self._ssl_context = _remake[self._ssl_context]()
        connected = await connect(self)
        _note_broker(self)
        return connected

    return patched


def _note_broker(connection: Any) -> None:
    """Note the certificate of a broker of the mesh's own Kafka, so that its expiry is reported."""
    from_pipe = isinstance(connection._security_protocol, JudgedProtocol)  # noqa: SLF001
    writer = connection._writer  # noqa: SLF001
    certificate = None if from_pipe or writer is None else writer.get_extra_info("peercert")
    if certificate:
        # aiokafka may keep a connection that is closed, but not its writer.
        IN_USE.note_peer(BROKER, f"{connection.host}:{connection.port}", certificate["notAfter"], writer)
