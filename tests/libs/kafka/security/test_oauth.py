"""Access tokens for OAUTHBEARER, from a token endpoint."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiokafka.errors import KafkaConnectionError

from hifi.kafka.security.oauth import ClientCredentials


@dataclass
class TokenEndpoint:
    """Answers with tokens `token-1`, `token-2`… and keeps what it was asked."""

    life_s: float = 3600
    status: str = "200 OK"
    port: int = 0
    requests: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/token"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
        self.requests.append(head + (await reader.readexactly(length)).decode())
        token = {"access_token": f"token-{len(self.requests)}", "expires_in": self.life_s}
        body = json.dumps(token).encode()
        writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def _running(endpoint: TokenEndpoint) -> AsyncIterator[TokenEndpoint]:
    async with await asyncio.start_server(endpoint.answer, "127.0.0.1", 0) as server:
        endpoint.port = server.sockets[0].getsockname()[1]
        yield endpoint


async def test_a_token_is_fetched_once_and_kept_while_it_is_valid() -> None:
    async with _running(TokenEndpoint()) as endpoint:
        tokens = ClientCredentials(endpoint.url, "me", "p:w", "kafka")
        assert [await tokens.token(), await tokens.token()] == ["token-1", "token-1"]
    (request,) = endpoint.requests
    assert "grant_type=client_credentials&scope=kafka" in request
    credentials = base64.b64encode(b"me:p%3Aw").decode()
    assert f"authorization: basic {credentials}".lower() in request.lower()


async def test_a_token_is_replaced_before_it_expires() -> None:
    async with _running(TokenEndpoint(life_s=0)) as endpoint:
        tokens = ClientCredentials(endpoint.url, "me", "pw")
        assert [await tokens.token(), await tokens.token()] == ["token-1", "token-2"]


async def test_an_endpoint_that_refuses_is_named_and_the_secret_is_not() -> None:
    async with _running(TokenEndpoint(status="401 Unauthorized")) as endpoint:
        with pytest.raises(KafkaConnectionError, match=f"{endpoint.url} gave no access token") as raised:
            await ClientCredentials(endpoint.url, "me", "canary").token()
    assert "canary" not in repr(raised.value)
