"""Accept connections of a listening socket, many in one turn of the event loop.

libuv accepts one connection a turn. While turns take 20 ms, uvloop's own server needs half a minute for 1,500 of them.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Final

_AT_ONCE: Final = 64
"""Connections accepted in one turn, so that those that are open are served in between."""
_HANDSHAKE_S: Final = 10.0
"""Longest time of a TLS handshake, seconds: that of a request's headers."""
_PAUSE_S: Final = 0.5
"""Pause when the process or the system has no files or memory left, seconds."""


@contextlib.contextmanager
def accepting(
    listener: socket.socket,
    make_protocol: Callable[[], asyncio.Protocol],
    tls: Callable[[], ssl.SSLContext] | None = None,
    handshakes: int = 1024,
) -> Iterator[None]:
    """Accept connections while the block runs.

    Args:
        listener: listens already and does not block.
        make_protocol: makes the protocol of a connection.
        tls: gives the context of a new connection; None: connections are not encrypted.
        handshakes: most TLS handshakes at a time; further connections are closed. One may take 10 s.
    """
    acceptor = _Acceptor(listener, make_protocol, tls, handshakes)
    acceptor.resume()
    try:
        yield
    finally:
        acceptor.stop()


class _Acceptor:
    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: Callable[[], ssl.SSLContext] | None,
        handshakes: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._make_protocol = make_protocol
        self._tls = tls
        self._handshakes = handshakes
        self._opening_tasks: set[asyncio.Task[None]] = set()
        self._pause_timer: asyncio.TimerHandle | None = None

    def resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def stop(self) -> None:
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self._loop.remove_reader(self._listener)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # the client has closed it already
                continue
            except OSError:
                self._loop.remove_reader(self._listener)
                self._pause_timer = self._loop.call_later(_PAUSE_S, self.resume)
                return
            if self._tls is not None and len(self._opening_tasks) >= self._handshakes:
                connection.close()
                continue
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._open(connection))
            self._opening_tasks.add(task)
            task.add_done_callback(self._opening_tasks.discard)

    async def _open(self, connection: socket.socket) -> None:
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(self._make_protocol, connection)
            else:
                await self._loop.connect_accepted_socket(
                    self._make_protocol, connection, ssl=self._tls(), ssl_handshake_timeout=_HANDSHAKE_S
                )
        except OSError:  # it was reset in the meantime, or speaks no TLS
            connection.close()
