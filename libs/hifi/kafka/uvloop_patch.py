"""Make aiokafka notice a closed connection under uvloop, and end a TLS connection soon.

asyncio ignores a write to a transport that has just been closed; the reader reports the end a moment later. uvloop
raises a RuntimeError instead, which aiokafka handles nowhere (its issue 1038). The task that refreshes a client's
metadata then ends silently, and the client waits for metadata for ever: a service stopped working after a restart of
its broker.

uvloop waits 30 s for the broker's answer to the end of a TLS connection, and a broker that is about to answer a fetch
sometimes gives none; asyncio closes the socket. The caller that stops a client then waits for these 30 s.
"""

import functools
from typing import Any, Final

from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError, KafkaError

_TLS_END_S: Final = 1.0
"""How long a broker may take to answer the end of a TLS connection, seconds."""


def apply() -> None:
    """Patch all aiokafka connections of this process; calling it again does nothing.

    Writing to a closed connection raises KafkaConnectionError, and closing one takes at most about a second.
    """
    if not hasattr(AIOKafkaConnection.send, "__wrapped__"):
        AIOKafkaConnection.send = _raise_connection_error(AIOKafkaConnection.send)
        AIOKafkaConnection.close = _end_tls_soon(AIOKafkaConnection.close)


def _end_tls_soon(close: Any) -> Any:
    @functools.wraps(close)
    def patched(self: Any, *arguments: Any, **options: Any) -> Any:
        transport = None if self._writer is None else self._writer.transport
        closed = close(self, *arguments, **options)
        if transport is not None and closed is not None and self._security_protocol in {"SSL", "SASL_SSL"}:
            loop = closed.get_loop()
            if not loop.is_closed():
                loop.call_later(_TLS_END_S, transport.abort)
        return closed

    return patched


def _raise_connection_error(send: Any) -> Any:
    @functools.wraps(send)
    def patched(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return send(self, *arguments, **options)
        except KafkaError:  # is a RuntimeError as well
            raise
        except RuntimeError as error:
            self.close(reason=CloseReason.CONNECTION_BROKEN, exc=error)
            raise KafkaConnectionError(f"Connection at {self.host}:{self.port} closed: {error}") from error

    return patched
