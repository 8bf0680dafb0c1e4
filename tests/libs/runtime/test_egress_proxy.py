"""Clients that resolve names by themselves reach allowed addresses only, judged at each connection."""

import asyncio
import hashlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import requests
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.support.kubernetes.keys import Authority
from yarl import URL

from hifi.runtime.egress import EgressKind
from hifi.runtime.egress_proxy import proxy_url
from hifi_objects.bucket import open_bucket
from hifi_objects.declaration import S3Settings

PUBLIC = "93.184.216.34"
MEGABYTE = 1_000_000


async def _echo(request: web.Request) -> web.StreamResponse:
    """Answer with the digest of the body, or with as many bytes as `length` asks for, and headers of the request."""
    if request.query.get("early"):
        return web.Response(status=413, text="too large")
    answer = web.StreamResponse(headers={"x-path": request.raw_path, "x-host": request.host})
    if length := request.query.get("length"):
        answer.content_length = int(length)
    else:
        answer.enable_chunked_encoding()
    for name in ("x-sent", "proxy-authorization", "expect"):
        answer.headers[f"got-{name}"] = request.headers.get(name, "")
    body = await request.read()
    await answer.prepare(request)
    if request.method != "HEAD":
        await answer.write(bytes(int(length)) if length else hashlib.sha256(body).hexdigest().encode())
    return answer


def _application(handler: Callable[[web.Request], Any]) -> web.Application:
    application = web.Application(client_max_size=100 * MEGABYTE)
    application.router.add_route("*", "/{path:.*}", handler)
    return application


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    server = TestServer(_application(_echo))
    async with server:
        yield server


def _allow(monkeypatch: pytest.MonkeyPatch, allowed: str) -> None:
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", allowed)


async def test_a_request_arrives_as_it_was_sent(server: TestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    _allow(monkeypatch, f"s3=127.0.0.1:{server.port}")
    body = os.urandom(5 * MEGABYTE)
    url = f"http://127.0.0.1:{server.port}"
    async with aiohttp.ClientSession(proxy=proxy_url(EgressKind.S3, "shop")) as session:
        for chunked in (True, None):
            async with session.put(
                URL(f"{url}/a%2Fb//c?x=%20&y", encoded=True),
                data=body,
                headers={"x-sent": "as is"},
                chunked=chunked,
                expect100=True,
            ) as answer:
                assert await answer.text() == hashlib.sha256(body).hexdigest()
                assert answer.headers["x-path"] == "/a%2Fb//c?x=%20&y"
                assert answer.headers["x-host"] == f"127.0.0.1:{server.port}"
                assert answer.headers["got-x-sent"] == "as is"
                assert not answer.headers["got-proxy-authorization"]
        async with session.get(f"{url}/?length={MEGABYTE}") as answer:
            assert await answer.read() == bytes(MEGABYTE)
        async with session.head(f"{url}/?length={MEGABYTE}") as answer:
            assert answer.headers["content-length"] == str(MEGABYTE)
        async with session.put(f"{url}/?early=1", data=body) as answer:
            assert answer.status == 413


@pytest.mark.slow
async def test_tls_is_between_the_client_and_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Authority(tmp_path, "authority").issue("server", "server", serves=["127.0.0.1"])
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    trusted = ssl.create_default_context(cafile=str(tmp_path / "authority.crt"))
    body = os.urandom(5 * MEGABYTE)
    server = TestServer(_application(_echo), scheme="https")
    await server.start_server(ssl=server_context)
    async with server:
        _allow(monkeypatch, f"s3=127.0.0.1:{server.port}")
        async with aiohttp.ClientSession(proxy=proxy_url(EgressKind.S3, "shop")) as session:
            answers = await asyncio.gather(
                *(
                    session.put(f"https://127.0.0.1:{server.port}/{number}", data=body, ssl=trusted)
                    for number in range(8)
                )
            )
            for answer in answers:
                assert await answer.text() == hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_what_is_not_allowed_gets_no_connection(
    server: TestServer, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    _allow(monkeypatch, f"catalog=127.0.0.1:{server.port},s3=127.0.0.2")
    async with aiohttp.ClientSession(proxy=proxy_url(EgressKind.S3, "shop")) as session:
        for host in ("127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"):
            status = await _status(session, f"{scheme}://{host}:{server.port}/")
            assert status == 403, host


async def test_what_is_allowed_for_a_pipe_is_for_no_other_pipe(
    server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _allow(monkeypatch, f"shop=s3=127.0.0.1:{server.port}")
    url = f"http://127.0.0.1:{server.port}/"
    statuses = [
        await asyncio.to_thread(_get, proxy_url(EgressKind.S3, pipe), url)
        for pipe in ("shop", "orders", None, "shop")
    ]
    assert statuses == [200, 403, 403, 200]


async def _status(session: aiohttp.ClientSession, url: str) -> int:
    """Of the server's answer, or of the proxy's refusal to connect."""
    try:
        async with session.get(url) as answer:
            return answer.status
    except aiohttp.ClientHttpProxyError as refusal:
        return refusal.status


async def test_a_name_is_judged_at_each_connection(
    server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _allow(monkeypatch, "s3=127.0.0.2")
    answers = [["127.0.0.2"], [PUBLIC, "127.0.0.1"], ["127.0.0.1"]]
    resolve = socket.getaddrinfo
    connected = []

    def bound_again(host: str, port: int, *arguments: Any, **options: Any) -> Any:
        if host != "rebind.example":
            return resolve(host, port, *arguments, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers.pop(0)]

    async def connect(_: Any, __: socket.socket, address: Any) -> None:
        connected.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", bound_again)
    url = proxy_url(EgressKind.S3, "shop")
    monkeypatch.setattr(asyncio.selector_events.BaseSelectorEventLoop, "sock_connect", connect)
    rebound_url = f"http://rebind.example:{server.port}/"
    statuses = [await asyncio.to_thread(_get, url, rebound_url) for _ in range(3)]
    assert statuses == [502, 502, 403]
    assert connected == ["127.0.0.2", PUBLIC]
    assert answers == []


def _get(proxy: str, url: str) -> int:
    return requests.get(url, proxies={"http": proxy, "https": proxy}, timeout=60).status_code


async def test_clients_that_follow_redirects_do_not_leave_what_is_allowed(
    server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached_paths = []

    async def secret_answer(request: web.Request) -> web.Response:
        reached_paths.append(request.path)
        return web.Response(text="secret")

    async with TestServer(_application(secret_answer)) as forbidden:

        async def redirect(_: web.Request) -> web.Response:
            raise web.HTTPTemporaryRedirect(f"http://127.0.0.1:{forbidden.port}/x")

        async with TestServer(_application(redirect)) as redirecting:
            _allow(monkeypatch, f"s3=127.0.0.1:{redirecting.port}")
            url = f"http://127.0.0.1:{redirecting.port}"
            assert await asyncio.to_thread(_get, proxy_url(EgressKind.S3, "shop"), url) == 403
            settings = {"endpoint": url, "access_key": {"env": "S3_KEY"}, "secret_key": {"env": "S3_KEY"}}
            monkeypatch.setenv("S3_KEY", "key")
            store = open_bucket(
                S3Settings.model_validate({"bucket": "b", **settings}), timeout_s=60, pipe="shop"
            )
            with pytest.raises(Exception, match="403 Forbidden"):
                await store.get_async("key")
    assert reached_paths == []


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_client_that_has_gone_leaves_no_connection_to_a_silent_server(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    reached, disconnected = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            reached.set()
        disconnected.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _allow(monkeypatch, f"s3=127.0.0.1:{port}")
    async with server, aiohttp.ClientSession(proxy=proxy_url(EgressKind.S3, "shop")) as session:
        request = asyncio.create_task(session.put(f"{scheme}://127.0.0.1:{port}/", data=b"content"))
        await asyncio.wait_for(reached.wait(), 60)
        assert not disconnected.is_set()
        request.cancel()
        await asyncio.wait_for(disconnected.wait(), 60)


async def test_an_answer_before_the_end_of_the_body_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 no\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno")
        writer.write_eof()
        while await reader.read(MEGABYTE):
            pass
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _allow(monkeypatch, f"s3=127.0.0.1:{port}")

    async def body() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(MEGABYTE)
            await asyncio.sleep(0)

    async with (
        server,
        aiohttp.ClientSession(proxy=proxy_url(EgressKind.S3, "shop")) as session,
        session.put(f"http://127.0.0.1:{port}/", data=body()) as answer,
    ):
        assert answer.status == 403
        assert await answer.text() == "no"


async def test_what_is_no_request_for_a_proxy_gets_a_reason() -> None:
    port = int(proxy_url(EgressKind.S3, "shop").rpartition(":")[2])
    for target in ("ftp://127.0.0.1/", "/", "http://", "https://127.0.0.1/"):
        assert await _raw(port, f"GET {target} HTTP/1.1") == 400, target
    for target in ("nowhere", "127.0.0.1:", "127.0.0.1:70000", "[::1"):
        assert await _raw(port, f"CONNECT {target} HTTP/1.1") == 400, target
    assert await _raw(port, "\x16\x03\x01\x02 \x01") is None


async def _raw(port: int, line: str) -> int | None:
    """Status of the answer to a request; None: there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{line}\r\nhost: x\r\n\r\n".encode("latin-1"))
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return int(answer.split(b" ", 2)[1]) if answer else None
