"""Make aiokafka notice a closed connection under uvloop.

asyncio ignores a write to a transport that has just been closed; the reader reports the end a moment later. uvloop
raises a RuntimeError instead, which aiokafka handles nowhere (its issue 1038). The task that refreshes a client's
metadata then ends silently, and the client waits for metadata for ever: a service stopped working after a restart of
its broker.
"""

import functools
from typing import Any

from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError, KafkaError


def apply() -> None:
    """Patch all aiokafka connections of this process to raise KafkaConnectionError; calling it again does nothing."""
    if not hasattr(AIOKafkaConnection.send, "__wrapped__"):
        AIOKafkaConnection.send = _raise_connection_error(AIOKafkaConnection.send)


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
