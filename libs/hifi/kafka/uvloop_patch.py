"""Makes aiokafka see a closed connection under uvloop, too.

asyncio ignores a write on a transport that has just been closed, and the reader tells of the end in a moment. uvloop
raises a RuntimeError instead, which aiokafka expects nowhere (its issue 1038). The task that keeps a client's metadata
ends of it, silently, and from then on that client waits for metadata for ever: a service stood still when its broker had
been restarted.
"""

import functools
from typing import Any

from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError, KafkaError


def apply() -> None:
    """Have every connection of aiokafka in this process say it in the way that aiokafka handles; once is enough."""
    if not hasattr(AIOKafkaConnection.send, "__wrapped__"):
        AIOKafkaConnection.send = _telling(AIOKafkaConnection.send)


def _telling(send: Any) -> Any:
    @functools.wraps(send)
    def told(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return send(self, *arguments, **options)
        except KafkaError:  # a RuntimeError as well
            raise
        except RuntimeError as error:
            self.close(reason=CloseReason.CONNECTION_BROKEN, exc=error)
            raise KafkaConnectionError(f"Connection at {self.host}:{self.port} closed: {error}") from error

    return told
