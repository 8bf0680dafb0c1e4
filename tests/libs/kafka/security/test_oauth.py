"""Access tokens for OAUTHBEARER, from a token endpoint."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError

from hifi.kafka.security import KafkaSecurity, client_options
from hifi.kafka.security.oauth import ClientCredentials
from hifi.kafka.security.refusal import KafkaRefusedError
from hifi_infra.kafka.cluster import KafkaCluster


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


class OAuthCluster(KafkaCluster):
    """A secured broker that takes unsigned access tokens too."""

    def _write_settings(self, file: Path, broker: int, log: Path) -> None:
        super()._write_settings(file, broker, log)
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        with file.open("a") as settings:
            settings.write("sasl.enabled.mechanisms=SCRAM-SHA-512,OAUTHBEARER\n")
            settings.write(f"listener.name.broker.oauthbearer.sasl.jaas.config={module} required ")
            settings.write('unsecuredLoginStringClaim_sub="broker";\n')


def _unsigned_token(expires_s: float) -> str:
    parts = ({"alg": "none"}, {"sub": "somebody", "iat": time.time() - 7200, "exp": time.time() + expires_s})
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join(texts) + "."


async def test_a_broker_takes_a_valid_token_and_refuses_an_expired_one(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("pw")
    async with (
        OAuthCluster(tmp_path / "kafka", secure=True) as cluster,
        _running(TokenEndpoint()) as endpoint,
    ):
        assert cluster.credentials is not None
        security = KafkaSecurity(
            protocol="SASL_SSL",
            mechanism="OAUTHBEARER",
            ca_file=cluster.credentials.ca,
            user="me",
            password_file=tmp_path / "secret",
            token_url=endpoint.url,
        )
        endpoint.token = _unsigned_token(3600)
        async with AIOKafkaProducer(**client_options(cluster.bootstrap, security), acks="all") as producer:
            with pytest.raises(TopicAuthorizationFailedError):  # it has authenticated, and may do nothing
                await producer.send_and_wait("any", b"")
        endpoint.token = _unsigned_token(-3600)
        refused = AIOKafkaAdminClient(**client_options(cluster.bootstrap, security))
        with pytest.raises(KafkaRefusedError, match=r"refuses the access token \(OAUTHBEARER\)"):
            await refused.start()
        await refused.close()
