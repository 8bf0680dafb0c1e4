"""Only what the registry itself says about an id ends in a dead letter; everything else is waited for."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from hifi.avro.registry_client import RegistryAccess, RegistryClient
from hifi.avro.schemas_by_id import SchemasById
from hifi.runtime.errors import Misconfigured, Rejected, Retryable
from hifi_infra.kafka.certificates import make_authority, make_certificate

Serve = Callable[..., Awaitable[str]]


def answer(status: int, body: Any) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=status, body=body if isinstance(body, bytes) else orjson.dumps(body))

    return handle


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """A factory of servers with one handler; returns the URL."""
    runners = []

    async def make(handle: Any, tls: ssl.SSLContext | None = None) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "localhost", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        return f"{'http' if tls is None else 'https'}://localhost:{port}"

    yield make
    for runner in runners:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, {"error_code": 50001, "message": "backend"}),
        (503, b"<html>"),
        (401, {"error_code": 40101, "message": "who?"}),
        (403, {"error_code": 40301, "message": "no"}),
        (429, {"error_code": 42901, "message": "slowly"}),
        (404, b"<html>not here</html>"),
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
        (404, {"message": "no route"}),
        (422, {"error_code": 42201, "message": "odd"}),
        (301, b""),
        (200, b"<html>sign in</html>"),
        (200, {"id": 7}),
        (200, [1]),
        (200, {"schema": "{}", "references": [{"name": "x"}]}),
    ],
)
async def test_what_says_nothing_about_the_schema_is_waited_for(serve: Serve, status: int, body: Any) -> None:
    schemas = SchemasById(RegistryClient(RegistryAccess(await serve(answer(status, body)))))
    with pytest.raises(Retryable):
        await schemas.load([7])


async def test_a_registry_that_is_away_is_waited_for() -> None:
    with pytest.raises(Retryable, match="does not answer"):
        await SchemasById(RegistryClient(RegistryAccess("http://127.0.0.1:1"))).load([7])


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, {"error_code": 40403, "message": "Schema 7 not found"}, "unknown-schema"),
        (200, {"schema": "syntax", "schemaType": "PROTOBUF"}, "not-avro"),
        (200, {"schema": '{"type": "record"}'}, "unusable-schema"),
    ],
)
async def test_what_the_registry_says_about_the_schema_is_a_reason_of_a_dead_letter(
    serve: Serve, status: int, body: Any, reason: str
) -> None:
    schemas = SchemasById(RegistryClient(RegistryAccess(await serve(answer(status, body)))))
    await schemas.load([7])
    with pytest.raises(Rejected) as refusal:
        schemas.get(7)
    assert refusal.value.reason == reason


async def test_each_schema_is_asked_for_once_an_unknown_one_again_after_a_while_and_the_copy_is_bounded(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_ids, now = [], 0.0

    async def handle(request: web.Request) -> web.Response:
        asked_ids.append(int(request.path.rpartition("/")[2]))
        if asked_ids[-1] == 404:
            return web.Response(status=404, body=b'{"error_code": 40403, "message": "none"}')
        return web.Response(body=b'{"schema": "\\"string\\""}')

    monkeypatch.setattr("hifi.avro.schemas_by_id._MOST", 3)
    schemas = SchemasById(RegistryClient(RegistryAccess(await serve(handle))), lambda: now)
    for _ in range(2):
        await schemas.load([1, 2, 404])
    assert asked_ids == [1, 2, 404]
    now = 11.0
    await schemas.load([404, 1])
    assert asked_ids == [1, 2, 404, 404]
    schemas.get(1)
    await schemas.load([3])
    await schemas.load([1, 2])
    assert asked_ids == [1, 2, 404, 404, 3, 2], "2 was not used for the longest time"
    await schemas.load([1, 2, 3, 4, 5])
    assert [schemas.get(schema_id).tree for schema_id in (1, 2, 3, 4, 5)] == ["string"] * 5, (
        "a batch may have more"
    )


async def test_the_user_has_the_password_that_the_file_has_now_and_tls_needs_the_authority(
    serve: Serve, tmp_path: Path
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
    url, password = await serve(handle, tls), tmp_path / "password"
    client = RegistryClient(RegistryAccess(url, "ann", password, tmp_path / "ca.pem"))
    with pytest.raises(Misconfigured, match="cannot be read"):
        await client.schema(1)
    for text in ("one\n", "two"):
        password.write_text(text)
        await client.schema(1)
    assert authorizations == ["Basic YW5uOm9uZQ==", "Basic YW5uOnR3bw=="]
    with pytest.raises(Retryable, match="certificate"):
        await RegistryClient(RegistryAccess(url)).schema(1)
