"""Send what is written in one turn of the event loop with one system call."""

import asyncio
from typing import Any, Final

_MOST_BYTES: Final = 64 * 1024


class JoinedWrites:
    """A transport that passes on what was written when the turn of the event loop ends.

    uvicorn writes the head of a response and its body one after the other, and uvloop gives each of them to the kernel
    at once: two system calls, and two packets for the client to read. More than 64 KiB are passed on at once, so that
    the transport can pause the writer.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Pass everything but writes and the end of the connection on to `transport`."""
        self._transport = transport
        self._loop = loop
        self._pending_writes: list[bytes] = []
        self._pending_bytes = 0

    def __getattr__(self, name: str) -> Any:
        """Everything else of the transport."""
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write at the end of this turn."""
        if not self._pending_writes:
            self._loop.call_soon(self._flush)
        self._pending_writes.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes > _MOST_BYTES:
            self._flush()

    def close(self) -> None:
        """Close the connection when everything is written."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._pending_writes.clear()
        self._pending_bytes = 0
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether the connection is closed, or is about to be."""
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._pending_writes:
            data, self._pending_writes, self._pending_bytes = b"".join(self._pending_writes), [], 0
            self._transport.write(data)
