"""Certificates, access tokens and proxies of a destination, with real servers."""

import asyncio
import contextlib
import datetime as dt
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiokafka import ConsumerRecord, TopicPartition
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import ValidationError
from tests.support.egest.egest_stream import attributes, until
from tests.support.egest.fake_destination import OK, ReceivedRequest, answer, destination
from tests.support.http.connect_proxy import connect_proxy

from hifi.delivery.answer import Answer, NoResponse
from hifi.delivery.sender import SenderContext, SentRequest
from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.partition_lease import PartitionLease
from hifi.runtime.health import Health
from hifi_egest.delivery.delivery import Delivery, EventRecord, OutboundRequest, SourcePartition
from hifi_egest.delivery.memory_bounds import InFlightBudget
from hifi_http.declaration import HttpDestination
from hifi_http.destination.sender import RequestSender


class Member:
    last_heartbeat_monotonic_s = float("inf")


def request() -> OutboundRequest:
    assigned_partition = AssignedPartition(TopicPartition("enriched", 0))
    record: Any = ConsumerRecord("enriched", 0, 0, 0, 0, b"k", b"{}", None, 0, 2, tuple(attributes(0)))
    partition = SourcePartition(assigned_partition, "enriched", InFlightBudget(10, 10**6))
    delivery = Delivery(EventRecord(record, partition, b"", [], "flights", b"x:1", 0, 5), b"d")
    return OutboundRequest([delivery], [], PartitionLease(Member, 10.0))


@contextlib.asynccontextmanager
async def sending(
    url: str, health: Health | None = None, refresh_s: float = 60.0, **declared: Any
) -> AsyncIterator[Callable[[], Awaitable[Answer | NoResponse]]]:
    destination_there = HttpDestination.model_validate({"name": "d", "url": url, **declared})
    context = SenderContext("flights", health or Health("egest", "i"), refresh_s, lambda: None)
    sender = RequestSender(destination_there, context)

    async def send() -> Answer | NoResponse:
        await until(lambda: sender.ready, 5)
        sent_request = await sender.send(request())
        assert isinstance(sent_request, SentRequest)
        assert isinstance(sent_request.result, Answer | NoResponse)
        return sent_request.result

    try:
        yield send
    finally:
        await sender.stop()


# Certificates


class Authority:
    """Signs certificates of `localhost` and of clients."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.pem = self._pem(self._signed(self._name, self._key, authority=True))

    def issue(self, name: str) -> tuple[str, str]:
        """Certificate and key, PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return self._pem(self._signed(subject, key, authority=False)), text.decode()

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        alternative_names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
        public = self._key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
            .add_extension(alternative_names, critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @staticmethod
    def _pem(certificate: x509.Certificate) -> str:
        return certificate.public_bytes(serialization.Encoding.PEM).decode()


def server_context(folder: Path, authority: Authority, clients: Authority | None = None) -> ssl.SSLContext:
    certificate, key = authority.issue("localhost")
    (folder / "server.pem").write_text(certificate + key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem")
    if clients is not None:
        context.load_verify_locations(cadata=clients.pem)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def write(folder: Path, **texts: str) -> dict[str, dict[str, str]]:
    for name, text in texts.items():
        (folder / f"{name}.pem").write_text(text)
    return {name: {"file": str(folder / f"{name}.pem")} for name in texts}


def there_url(url: str) -> str:
    return url.replace("127.0.0.1", "localhost")


async def test_the_authority_of_a_destination_is_the_only_one_it_trusts(tmp_path: Path) -> None:
    authority, other_authority = Authority("ours"), Authority("other")
    async with destination(tls=server_context(tmp_path, authority)) as server:
        for ca, trusted in ((authority, True), (other_authority, False)):
            async with sending(
                there_url(server.url), tls=write(tmp_path, ca=f"# Prüfstelle\n{ca.pem}")
            ) as send:
                result = await send()
                assert isinstance(result, Answer) if trusted else result.reason == "tls"
        async with sending(there_url(server.url)) as send:
            assert (await send()).reason == "tls"
        assert len(server.requests) == 1


async def test_a_client_certificate_is_sent_also_through_a_proxy_and_a_renewed_one_is_used(
    tmp_path: Path,
) -> None:
    authority, clients, other_authority = Authority("ours"), Authority("clients"), Authority("other")
    certificate, key = other_authority.issue("egest")
    tls = write(tmp_path, ca=authority.pem, certificate=certificate, key=key)
    context = server_context(tmp_path, authority, clients)
    async with destination(tls=context) as server, connect_proxy() as proxy:
        declared: dict[str, Any] = {"tls": tls, "proxy": {"url": f"http://127.0.0.1:{proxy.port}"}}
        async with sending(there_url(server.url), refresh_s=0.2, **declared) as send:
            assert isinstance(await send(), NoResponse)
            certificate, key = clients.issue("egest")
            (tmp_path / "key.pem").write_text(key)  # not one that fits, until its certificate is there
            await asyncio.sleep(0.5)
            (tmp_path / "certificate.pem").write_text(certificate)
            ends_s = time.monotonic() + 10
            while not isinstance(result := await send(), Answer) and time.monotonic() < ends_s:
                await asyncio.sleep(0.1)
            assert isinstance(result, Answer)
        assert len(server.requests) == 1
        assert proxy.asked


@pytest.mark.parametrize(
    "texts",
    [{"ca": "nonsense"}, {"ca": "é"}, {"certificate": "nonsense", "key": "nonsense"}],
    ids=["authority", "not-ascii", "certificate"],
)
async def test_what_is_no_certificate_is_shown_and_not_quoted(tmp_path: Path, texts: dict[str, str]) -> None:
    health = Health("egest", "i")
    async with sending("https://there.example/", health, tls=write(tmp_path, **texts)):
        (warning,) = health.warnings.values()
        assert "`tls." in warning
        assert "nonsense" not in warning


async def test_a_secret_of_any_bytes_stops_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "\udcff")  # a byte that is no UTF-8
    proxy = {"url": "http://127.0.0.1:1", "user": "u", "password": {"env": "PASSWORD"}}
    health = Health("egest", "i")
    async with sending("http://there.example/", health, proxy=proxy):
        assert len(health.warnings) == 1


async def test_an_error_in_the_credentials_is_shown_and_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise TypeError("geheim")

    monkeypatch.setattr("hifi_http.destination.credentials.tls_context", fail)
    health = Health("egest", "i")
    async with sending("https://there.example/", health, tls={"ca": {"env": "PATH"}}):
        (warning,) = health.warnings.values()
        assert "TypeError" in warning
        assert "geheim" not in warning


# Access tokens


class TokenServer:
    """A token endpoint: each token has its number."""

    def __init__(self) -> None:
        self.status = 200
        self.life_s: Any = 3600
        self.text = ""
        self.parts: list[str] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        form_fields = {name: str(value) for name, value in (await request.post()).items()}
        self.requests.append((request.headers["Authorization"], form_fields))
        if self.parts:
            answer = web.StreamResponse()
            await answer.prepare(request)
            for part in self.parts:
                await answer.write(part.encode())
                await asyncio.sleep(0.1)
            return answer
        if self.text:
            return web.Response(text=self.text, status=self.status)
        grant = {"access_token": f"token-{len(self.requests)}", "expires_in": self.life_s}
        return web.json_response(grant, status=self.status)


@contextlib.asynccontextmanager
async def token_server() -> AsyncIterator[TokenServer]:
    server = TokenServer()
    application = web.Application()
    application.router.add_post("/token", server.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/token"
    try:
        yield server
    finally:
        await runner.cleanup()


@pytest.fixture
def oauth(monkeypatch: pytest.MonkeyPatch) -> Callable[[TokenServer], dict[str, Any]]:
    monkeypatch.setenv("CLIENT_SECRET", "geheim")
    return lambda tokens: {
        "oauth": {
            "token_url": tokens.url,
            "client_id": "egest:1",
            "client_secret": {"env": "CLIENT_SECRET"},
            "scope": "events",
        }
    }


def bearers(requests: list[ReceivedRequest]) -> list[str]:
    return [request.headers["authorization"] for request in requests]


async def test_one_token_serves_many_requests(oauth: Any) -> None:
    async with (
        token_server() as tokens,
        destination() as server,
        sending(server.url, **oauth(tokens)) as send,
    ):
        for _ in range(5):
            assert isinstance(await send(), Answer)
        assert bearers(server.requests) == ["Bearer token-1"] * 5
    assert tokens.requests == [
        ("Basic ZWdlc3QlM0ExOmdlaGVpbQ==", {"grant_type": "client_credentials", "scope": "events"})
    ]


async def test_an_answer_may_arrive_in_parts_and_a_short_life_asks_for_no_other_at_once(oauth: Any) -> None:
    async with token_server() as tokens, destination() as server:
        tokens.parts = ['{"access_token": "to', 'ken-1", "expires_in": 0.0001}']
        async with sending(server.url, **oauth(tokens)) as send:
            assert isinstance(await send(), Answer)
            await asyncio.sleep(0.3)
        assert bearers(server.requests) == ["Bearer token-1"]
    assert len(tokens.requests) == 1


async def test_a_token_is_replaced_before_it_expires(oauth: Any) -> None:
    async with token_server() as tokens, destination() as server:
        tokens.life_s = 1
        async with sending(server.url, **oauth(tokens)) as send:
            ends_s = time.monotonic() + 2.5
            while time.monotonic() < ends_s:
                assert isinstance(await send(), Answer)
                await asyncio.sleep(0.05)
        assert len(set(bearers(server.requests))) >= 3


async def test_after_a_401_the_request_is_sent_again_with_another_token_but_once(
    oauth: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hifi_http.destination.access_token.RETRY_S", 0.3)
    accepted = {"Bearer token-1"}

    async def reply(request: ReceivedRequest) -> bytes:
        return OK if request.headers["authorization"] in accepted else answer(401)

    async with token_server() as tokens, destination(reply) as server:
        async with sending(server.url, **oauth(tokens)) as send:

            async def status() -> int | None:
                result = await send()
                return result.status if isinstance(result, Answer) else None

            assert await status() == 200
            await asyncio.sleep(0.4)
            accepted.add("Bearer token-2")
            accepted.remove("Bearer token-1")
            assert await status() == 200
            assert bearers(server.requests) == ["Bearer token-1"] * 2 + ["Bearer token-2"]
            accepted.clear()
            assert {*await asyncio.gather(*(status() for _ in range(20)))} == {401}
        assert len(tokens.requests) <= 3, "each refusal fetches a token"


async def test_a_destination_that_refuses_slowly_gets_the_request_twice(
    oauth: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hifi_http.destination.access_token.RETRY_S", 0.1)

    async def reply(_: ReceivedRequest) -> bytes:
        await asyncio.sleep(0.2)
        return answer(401)

    async with token_server() as tokens, destination(reply) as server:
        async with sending(server.url, **oauth(tokens)) as send, asyncio.timeout(20):
            result = await send()
        assert isinstance(result, Answer)
        assert result.status == 401
        assert bearers(server.requests) == ["Bearer token-1", "Bearer token-2"]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (401, ""),
        (302, ""),
        (200, "no JSON"),
        (200, "[]"),
        (200, '{"access_token": ""}'),
        (200, '{"access_token": "a", "expires_in": -1}'),
        (200, '{"access_token": "a", "expires_in": "NaN"}'),
        (200, '{"access_token": "a", "expires_in": 1' + "0" * 400 + "}"),
        (200, "[" * 100_000),
        (200, '{"access_token": "a", "padding": "' + "x" * 300_000 + '"}'),
        (200, '{"access_token": "a\\r\\nx: y"}'),
    ],
)
async def test_without_a_token_the_reason_is_shown_until_there_is_one(
    oauth: Any, monkeypatch: pytest.MonkeyPatch, status: int, text: str
) -> None:
    monkeypatch.setattr("hifi_http.destination.access_token.RETRY_S", 0.1)
    health = Health("egest", "i")
    async with token_server() as tokens, destination() as server:
        tokens.status, tokens.text, tokens.life_s = status, text, 0.5
        async with sending(server.url, health, **oauth(tokens)) as send:
            await until(lambda: health.warnings, 5)
            (warning,) = health.warnings.values()
            assert "token" in warning or "Authorization" in warning
            assert "geheim" not in warning
            tokens.status, tokens.text = 200, ""
            if "\\r" not in text:  # that one lives for a minute
                assert isinstance(await send(), Answer)
                assert health.warnings == {}


async def test_a_secret_that_the_pipe_may_not_have_goes_to_no_token_endpoint(
    oauth: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", "other=CLIENT_SECRET")
    health = Health("egest", "i")
    async with token_server() as tokens, destination() as server:
        async with sending(server.url, health, **oauth(tokens)):
            await asyncio.sleep(0.3)
            (warning,) = health.warnings.values()
            assert "HIFI_PIPES_SECRET_GRANTS" in warning
        assert tokens.requests == []


async def test_a_token_endpoint_with_a_forbidden_address_is_not_asked(
    oauth: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    health = Health("egest", "i")
    async with token_server() as tokens, destination() as server:
        declared = oauth(tokens)
        declared["oauth"]["token_url"] = there_url(tokens.url)
        monkeypatch.setenv("HIFI_EGRESS_ALLOW", "http=loopback")
        async with sending(server.url, health, **declared):
            await until(lambda: health.warnings, 5)
            (warning,) = health.warnings.values()
            assert "HIFI_EGRESS_ALLOW" in warning
        assert tokens.requests == []


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"tls": {"ca": {"env": "A"}}, "url": "http://h/"}, "needs an https URL"),
        ({"tls": {}}, "set `ca`"),
        ({"tls": {"key": {"env": "A"}}}, "together"),
        ({"proxy": {"url": "https://p/"}}, "http://HOST:PORT"),
        ({"proxy": {"url": "http://p/path"}}, "http://HOST:PORT"),
        ({"proxy": {"url": "http://p/", "user": "u"}}, "together"),
        ({"proxy": {"url": "http://p/", "user": "u:v", "password": {"env": "A"}}}, "must not have"),
        (
            {"headers": {"authorization": "x"},
             "oauth": {"token_url": "https://t/", "client_id": "c", "client_secret": {"env": "A"}}},
            "sets the header Authorization",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(declared: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        HttpDestination.model_validate({"name": "d", "url": "https://h/", **declared})
