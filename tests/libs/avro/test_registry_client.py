"""A registry is asked with the password and the authority that its files have now."""

import ssl
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.http.answering_server import answering_server

from hifi.avro.registry_client import RegistryAccess, RegistryClient
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.kafka.certificates import make_authority, make_certificate


async def test_the_user_has_the_password_that_the_file_has_now_and_tls_needs_the_authority(
    tmp_path: Path,
) -> None:
    authorizations: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        authorizations.append(request.headers.get("authorization", ""))
        return web.Response(body=b'{"schema": "\\"string\\""}')

    key, authority = make_authority()
    (tmp_path / "ca.pem").write_text(authority)
    (tmp_path / "server.pem").write_text("".join(make_certificate(key, authority, "registry")))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "server.pem")
    password = tmp_path / "password"
    async with answering_server(handle, tls) as url:
        client = RegistryClient(RegistryAccess(url, "ann", password, tmp_path / "ca.pem"))
        with pytest.raises(Misconfigured, match="cannot be read"):
            await client.schema(1)
        for text in ("one\n", "two"):
            password.write_text(text)
            await client.schema(1)
        assert authorizations == ["Basic YW5uOm9uZQ==", "Basic YW5uOnR3bw=="]
        with pytest.raises(Retryable, match="certificate"):
            await RegistryClient(RegistryAccess(url)).schema(1)
