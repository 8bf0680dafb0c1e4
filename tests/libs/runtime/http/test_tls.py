"""A server with TLS: renewal without a restart, and clients that do not finish a handshake."""

import asyncio
import contextlib
import datetime as dt
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi.runtime.http import server
from hifi.runtime.http.limits import ConnectionLimits
from hifi.runtime.http.tls import TLS_SETTINGS, ServerCertificate, refuse_tls_settings, server_certificate

WITHIN_S = 10


ROOT = Path(__file__).parents[4]


def write_pair(folder: Path, serial: int, password: bytes | None = None) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    files = folder / "chain.pem", folder / "key.pem"
    contents = (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption),
    )
    for file, content in zip(files, contents, strict=True):
        part_file = file.with_suffix(".part")
        part_file.write_bytes(content)
        part_file.replace(file)
    return files


async def scheme(request: Request) -> PlainTextResponse:
    return PlainTextResponse(request.url.scheme)


@contextlib.asynccontextmanager
async def serving(
    certificate: ServerCertificate, limits: ConnectionLimits | None = None
) -> AsyncIterator[int]:
    sock = server.listen("127.0.0.1", 0)
    port: int = sock.getsockname()[1]
    app = Starlette(routes=[Route("/", scheme)])
    async with server.serve(
        app, sock, drain_s=1, certificate=certificate, limits=limits or ConnectionLimits()
    ):
        yield port


def trusting(chain: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(chain))


async def get(port: int, context: ssl.SSLContext | None) -> tuple[bytes, int]:
    """The answer to a request, and the serial number of the server's certificate."""
    async with asyncio.timeout(WITHIN_S):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="localhost" if context else None
        )
        try:
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            tls = writer.get_extra_info("ssl_object")
            serial = (
                x509.load_der_x509_certificate(tls.getpeercert(binary_form=True)).serial_number if tls else 0
            )
        finally:
            writer.close()
    return answer, serial


async def test_responses_over_tls_tell_browsers_to_keep_to_it(tmp_path: Path) -> None:
    chain, key = write_pair(tmp_path, 1)
    async with serving(ServerCertificate(chain, key, Health("ingest", "ingest-1"))) as port:
        answer, _ = await get(port, trusting(chain))
    assert b"200 OK" in answer
    assert answer.endswith(b"https")
    assert b"strict-transport-security: max-age=31536000" in answer


async def test_a_renewed_certificate_is_used_by_new_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hifi.runtime.http.tls._LOOK_S", 0.02)
    chain, key = write_pair(tmp_path, 1)
    async with serving(ServerCertificate(chain, key, Health("ingest", "ingest-1"))) as port:
        context = trusting(chain)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="localhost"
        )
        write_pair(tmp_path, 2)
        context = trusting(chain)
        async with asyncio.timeout(WITHIN_S):
            while True:
                with contextlib.suppress(ssl.SSLError):  # the client trusts the new certificate only
                    answer, serial = await get(port, context)
                    break
        assert (serial, b"200 OK" in answer) == (2, True)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"200 OK" in await reader.read()  # the open connection goes on
        writer.close()


def test_a_pair_that_does_not_fit_leaves_the_old_one_in_use_with_a_warning(tmp_path: Path) -> None:
    chain, key = write_pair(tmp_path, 1)
    health = Health("ingest", "ingest-1")
    certificate = ServerCertificate(chain, key, health)
    context_before = certificate.context
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    new_chain, new_key = write_pair(other_folder, 2)
    new_chain.replace(chain)
    certificate.refresh()
    assert certificate.context is context_before
    assert str(chain) in health.warnings["tls-certificate"]
    assert "still in use" in health.warnings["tls-certificate"]
    key.unlink()
    certificate.refresh()
    assert certificate.context is context_before
    new_key.replace(key)
    certificate.refresh()
    assert certificate.context is not context_before
    assert health.warnings == {}
    assert health.ready


async def test_what_is_no_tls_is_closed_and_the_next_client_is_served(tmp_path: Path) -> None:
    chain, key = write_pair(tmp_path, 1)
    async with serving(ServerCertificate(chain, key, Health("ingest", "ingest-1"))) as port:
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer, _ = await get(port, None)
        assert b"HTTP/" not in answer
        old_context = trusting(chain)
        with pytest.deprecated_call():
            old_context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await get(port, old_context)
        answer, _ = await get(port, trusting(chain))
        assert b"200 OK" in answer


@pytest.mark.slow
async def test_handshakes_that_do_not_go_on_are_limited_in_number_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hifi.runtime.http.listener._HANDSHAKE_S", 0.5)
    chain, key = write_pair(tmp_path, 1)
    limits = ConnectionLimits(connections=8)
    async with serving(ServerCertificate(chain, key, Health("ingest", "ingest-1")), limits) as port:
        silent_connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        async with asyncio.timeout(WITHIN_S):
            for reader, _ in silent_connections:  # 12 at once, 8 when their time is over
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
        answer, _ = await get(port, trusting(chain))
        for _, writer in silent_connections:
            writer.close()
    assert b"200 OK" in answer


@pytest.mark.parametrize("missing_file", ["chain.pem", "key.pem"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, missing_file: str) -> None:
    chain, key = write_pair(tmp_path, 1)
    (tmp_path / missing_file).unlink()
    with pytest.raises(Misconfigured, match=missing_file):
        ServerCertificate(chain, key, Health("ingest", "ingest-1"))


def test_a_key_with_a_password_is_refused_and_nothing_asks_for_it(tmp_path: Path) -> None:
    chain, key = write_pair(tmp_path, 1, b"secret")
    with pytest.raises(Misconfigured, match="password"):
        ServerCertificate(chain, key, Health("ingest", "ingest-1"))


def test_one_of_the_two_files_is_not_enough(tmp_path: Path) -> None:
    health = Health("ingest", "ingest-1")
    assert server_certificate(None, None, health) is None
    with pytest.raises(Misconfigured, match="both files"):
        server_certificate(tmp_path / "chain.pem", None, health)


def test_a_mesh_of_processes_refuses_settings_of_tls() -> None:
    refuse_tls_settings({"HIFI_INGEST_TLS_KEY_FILE": ""})
    with pytest.raises(Misconfigured, match="HIFI_OBSERVE_TLS_CERTIFICATE_FILE"):
        refuse_tls_settings({"HIFI_OBSERVE_TLS_CERTIFICATE_FILE": "chain.pem"})
    names = re.findall(
        r"`(HIFI_(?!FRONT)[A-Z]+_TLS_[A-Z]+_FILE)`", (ROOT / "docs/settings.md").read_text("utf-8")
    )
    assert sorted(names) == sorted(TLS_SETTINGS)
