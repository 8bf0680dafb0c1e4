"""Makes aiokafka read password and certificates again for each connection that it opens.

aiokafka keeps what a client was made with. A client that lives for months would fail to connect again once its password
or certificate has been replaced.
"""

import functools
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from aiokafka.conn import AIOKafkaConnection


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
        return await connect(self)

    return patched
