"""Accept connections of a listening socket, many in one turn of the event loop.

libuv accepts one connection a turn. While turns take 20 ms, uvloop's own server needs half a minute for 1,500 of them.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Final

_AT_ONCE: Final = 64
"""Connections accepted in one turn, so that those that are open are served in between."""
_PAUSE_S: Final = 0.5
"""Pause when the process or the system has no files or memory left, seconds."""


@contextlib.contextmanager
def accepting(listener: socket.socket, make_protocol: Callable[[], asyncio.Protocol]) -> Iterator[None]:
    """Accept connections while the block runs.

    Args:
        listener: listens already and does not block.
        make_protocol: makes the protocol of a connection.
    """
    loop = asyncio.get_running_loop()
    opening: set[asyncio.Task[object]] = set()
    resuming: asyncio.TimerHandle | None = None

    def accept() -> None:
        nonlocal resuming
        for _ in range(_AT_ONCE):
            try:
                connection, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # the client has closed it already
                continue
            except OSError:
                loop.remove_reader(listener)
                resuming = loop.call_later(_PAUSE_S, loop.add_reader, listener, accept)
                return
            connection.setblocking(False)
            if connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = loop.create_task(open_transport(connection))
            opening.add(task)
            task.add_done_callback(opening.discard)

    async def open_transport(connection: socket.socket) -> None:
        try:
            await loop.connect_accepted_socket(make_protocol, connection)
        except OSError:  # it was reset in the meantime
            connection.close()

    loop.add_reader(listener, accept)
    try:
        yield
    finally:
        if resuming is not None:
            resuming.cancel()
        loop.remove_reader(listener)
