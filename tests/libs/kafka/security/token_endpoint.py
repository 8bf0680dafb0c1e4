"""A token endpoint for the tests of this folder."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class TokenEndpoint:
    """Answers with tokens `token-1`, `token-2`… and keeps what it was asked."""

    life_s: float = 3600
    status: str = "200 OK"
    port: int = 0
    token: str = ""
    requests: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/token"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
        self.requests.append(head + (await reader.readexactly(length)).decode())
        token = {"access_token": self.token or f"token-{len(self.requests)}", "expires_in": self.life_s}
        body = json.dumps(token).encode()
        writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def running_endpoint(endpoint: TokenEndpoint) -> AsyncIterator[TokenEndpoint]:
    async with await asyncio.start_server(endpoint.answer, "127.0.0.1", 0) as server:
        endpoint.port = server.sockets[0].getsockname()[1]
        yield endpoint
