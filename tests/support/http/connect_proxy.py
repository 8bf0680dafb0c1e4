"""A real HTTP proxy for CONNECT, which keeps what it was asked for."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.support.egest.fake_destination import serving


@dataclass
class ConnectProxy:
    """Listens on a port of the loopback; `answer` replaces what it says to CONNECT."""

    port: int = 0
    answer: bytes = b""
    asked: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
        authority = head.split(" ")[1]
        self.asked.append(authority)
        self.heads.append(head)
        if self.answer:
            writer.write(self.answer)
            await writer.drain()
            return
        host, _, port = authority.rpartition(":")
        behind_reader, behind_writer = await asyncio.open_connection(host.strip("[]"), int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n")
        try:
            await asyncio.gather(_relay(reader, behind_writer), _relay(behind_reader, writer))
        finally:
            behind_writer.close()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def connect_proxy(answer: bytes = b"") -> AsyncIterator[ConnectProxy]:
    proxy = ConnectProxy(answer=answer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await proxy.serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()

    async with serving(serve) as proxy.port:
        yield proxy
