"""A token endpoint and signed access tokens, for tests of OAUTHBEARER."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa


class TokenSigner:
    """Signs access tokens of the user `somebody`; a broker verifies them with a key set in a file.

    Args:
        keys: the JSON Web Key Set, written here.
    """

    def __init__(self, keys: Path) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        numbers = self._key.public_key().public_numbers()
        key_fields = {
            name: _encoded(getattr(numbers, name).to_bytes(256 if name == "n" else 3)) for name in "ne"
        }
        keys.write_text(
            json.dumps({"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", **key_fields}]})
        )
        self._keys = keys.as_uri()

    def token(self, life_s: float) -> str:
        """A token that expires after these seconds."""
        now = int(time.time())
        segments = ({"alg": "RS256", "kid": "1"}, {"sub": "somebody", "iat": now - 7200, "exp": now + life_s})
        signed = ".".join(_encoded(json.dumps(segment).encode()) for segment in segments)
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_encoded(signature)}"

    def broker_settings(self, listener: str) -> dict[str, object]:
        """Settings of a broker whose listener takes these tokens."""
        prefix, package = (
            f"listener.name.{listener}.oauthbearer",
            "org.apache.kafka.common.security.oauthbearer",
        )
        return {
            f"{prefix}.sasl.jaas.config": (
                f'{package}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
            ),
            f"{prefix}.sasl.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
            f"{prefix}.sasl.oauthbearer.jwks.endpoint.url": self._keys,
        }

    @property
    def jvm_flag(self) -> str:
        """A flag that the broker's JVM needs."""
        return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._keys}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@dataclass
class TokenEndpoint:
    """Answers with what `make_token` returns for the number of the request, and keeps what it was asked."""

    life_s: float = 3600
    status: str = "200 OK"
    port: int = 0
    make_token: Callable[[int], str] = "token-{}".format
    requests: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/token"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
        self.requests.append(head + (await reader.readexactly(length)).decode())
        token = {"access_token": self.make_token(len(self.requests)), "expires_in": self.life_s}
        body = json.dumps(token).encode()
        writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def running_endpoint(endpoint: TokenEndpoint) -> AsyncIterator[TokenEndpoint]:
    async with await asyncio.start_server(endpoint.answer, "127.0.0.1", 0) as server:
        endpoint.port = server.sockets[0].getsockname()[1]
        yield endpoint
