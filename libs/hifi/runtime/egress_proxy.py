"""A proxy within this process for clients that resolve names by themselves: it connects to allowed addresses only.

obstore, pyarrow and requests take the address of a proxy, but no address to connect to in place of a name. Through this
one every connection of theirs is judged by the address that it is made to, also when a name is bound anew between two
requests, and when a server redirects. Each kind of connections of each pipe has a port of its own, so that a connection
is judged for its pipe. It listens on loopback; another process of the host that finds it reaches with it
what pipes may reach. It does CONNECT, and forwards requests for `http://` URLs, each over a connection of its own.
"""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import h11

from hifi.runtime.egress import EgressKind, EgressRefused, egress, host_and_port

_CHUNK_BYTES: Final = 256 * 1024
_CONNECT_S: Final = 30.0
_LAST_S: Final = 10.0
"""For a client to read the last answer of a connection."""
_OF_ONE_HOP: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-authorization", b"proxy-connection", b"te", b"upgrade")
)
"""Headers that are not forwarded."""


def proxy_url(kind: EgressKind, pipe: str | None) -> str:
    """URL of the proxy for connections of a kind; the first call starts it. It runs as long as the process.

    Args:
        kind: of the connections.
        pipe: for which they are judged; None: none.
    """
    with _start_lock:
        return _started_url(kind, pipe)


_start_lock: Final = threading.Lock()


@functools.cache
def _started_url(kind: EgressKind, pipe: str | None) -> str:
    return asyncio.run_coroutine_threadsafe(_Proxy(kind, pipe).start(), _loop()).result()


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """A loop in a thread of its own: callers may block theirs while they wait for an answer."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="egress-proxy", daemon=True).start()
    return loop


class _Refused(Exception):
    """A request gets no connection: the status of the answer, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Peer:
    """One side of a connection, with its state of HTTP."""

    def __init__(self, role: type[h11.CLIENT] | type[h11.SERVER], streams: Any) -> None:
        self.state = h11.Connection(role)
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter
        self.reader, self.writer = streams

    async def event(self) -> Any:
        """The next event."""
        while (event := self.state.next_event()) is h11.NEED_DATA:
            self.state.receive_data(await self.reader.read(_CHUNK_BYTES))
        return event

    async def send(self, event: Any) -> None:
        """Send an event."""
        if content := self.state.send(event):
            self.writer.write(content)
            await self.writer.drain()


async def _read_to_end(client: _Peer) -> None:
    """Let a client read what it was sent before the connection is closed: what it still sends would reset it."""
    client.writer.write_eof()
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST_S):
            while await client.reader.read(_CHUNK_BYTES):
                pass


class _Proxy:
    """Serves the connections of one kind of one pipe."""

    def __init__(self, kind: EgressKind, pipe: str | None) -> None:
        self._kind, self._pipe = kind, pipe
        self._server: asyncio.Server

    async def start(self) -> str:
        """Listen; returns the URL."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Peer(h11.SERVER, (reader, writer))
        try:
            while isinstance(request := await client.event(), h11.Request):
                await self._answer(client, request)
                if client.state.our_state is not h11.DONE or client.state.their_state is not h11.DONE:
                    await _read_to_end(client)
                    break
                client.state.start_next_cycle()
        except (OSError, h11.ProtocolError):
            pass  # one of the two has gone, or does not speak HTTP: the client sees that its connection ends
        finally:
            writer.close()

    async def _answer(self, client: _Peer, request: h11.Request) -> None:
        try:
            if request.method == b"CONNECT":
                async with self._connected(f"//{request.target.decode('latin-1')}") as streams:
                    await _tunnel(client, streams)
            else:
                url, path = _split_target(request.target)
                async with self._connected(url) as streams:
                    await _forward(client, request, path, _Peer(h11.CLIENT, streams))
        except _Refused as refusal:
            content = f"{refusal}\n".encode()
            headers = [("content-length", str(len(content))), ("connection", "close")]
            await client.send(h11.Response(status_code=refusal.status, headers=headers))
            await client.send(h11.Data(data=content))
            await client.send(h11.EndOfMessage())

    @asynccontextmanager
    async def _connected(self, url: str) -> AsyncIterator[Any]:
        """The streams of a connection to the host of a URL."""
        host, port = host_and_port(url)
        if not host or not port:
            raise _Refused(400, f"{url!r} has no host or no port")
        try:
            async with asyncio.timeout(_CONNECT_S):
                sock = await egress(self._pipe).connected_socket(self._kind, host, port)
                reader, writer = await asyncio.open_connection(sock=sock)
        except EgressRefused as error:
            raise _Refused(403, str(error)) from error
        except (OSError, TimeoutError) as error:
            raise _Refused(502, f"{host}:{port} accepts no connection: {error!r}") from error
        try:
            yield reader, writer
        finally:
            writer.close()


def _split_target(target: bytes) -> tuple[str, bytes]:
    """URL of the server of an absolute target, and what follows it, unchanged: it is signed."""
    scheme, separator, location = target.partition(b"://")
    if not separator or scheme.lower() != b"http":
        raise _Refused(400, "the target is no absolute `http://` URL")
    authority, slash, path = location.partition(b"/")
    return f"http://{authority.decode('latin-1')}", slash + path or b"/"


async def _tunnel(client: _Peer, streams: Any) -> None:
    reader, writer = streams
    await client.send(h11.Response(status_code=200, headers=[]))
    early_data, _ = client.state.trailing_data
    writer.write(early_data)
    await _until_one_ends(_copy(client.reader, writer), _copy(reader, client.writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while content := await reader.read(_CHUNK_BYTES):
        writer.write(content)
        await writer.drain()


async def _until_one_ends(*directions: Coroutine[Any, Any, None]) -> None:
    """Run both until one of them ends, so that a client that has gone does not leave a connection to a silent server.

    Raises:
        OSError, h11.ProtocolError: of the one that has ended.
    """
    tasks = [asyncio.create_task(direction) for direction in directions]
    try:
        ended_tasks, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended_tasks:
        task.result()


async def _forward(client: _Peer, request: h11.Request, path: bytes, server: _Peer) -> None:
    headers = [*_forwarded(request.headers), (b"connection", b"close")]
    await server.send(h11.Request(method=request.method, target=path, headers=headers))
    await _until_one_ends(_upload(client, server), _download(server, client))


async def _upload(client: _Peer, server: _Peer) -> None:
    """Send the body on; ends when the client has gone."""
    event, is_server_open = None, True
    while not isinstance(event, h11.EndOfMessage):
        event = await client.event()
        if is_server_open:
            try:
                await server.send(event)
            except OSError:
                is_server_open = False  # it has closed, perhaps after an answer
    while content := await client.reader.read(_CHUNK_BYTES):
        client.state.receive_data(content)  # of the next request


async def _download(server: _Peer, client: _Peer) -> None:
    """Send the answer on."""
    event = None
    while not isinstance(event, h11.EndOfMessage):
        event = await server.event()
        if isinstance(event, h11.Response):
            event = h11.Response(
                status_code=event.status_code, reason=event.reason, headers=_forwarded(event.headers)
            )
        await client.send(event)


def _forwarded(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name not in _OF_ONE_HOP]
