"""Messages of the errors when Kafka and a client do not accept each other."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError, KafkaError, TopicAuthorizationFailedError
from tests.support.kafka.secured_kafka import SecuredKafka
from tests.support.token_endpoint import TokenEndpoint, TokenSigner, running_endpoint

from hifi.kafka.security import KafkaSecurity, client_options
from hifi.kafka.security.refusal import KafkaRefusedError
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.credentials import ADMIN, BROKER, ClusterCredentials, write_secret
from hifi_infra.kafka.scram_users import set_passwords
from hifi_infra.ports import free_port


async def _connect(bootstrap: str, security: KafkaSecurity) -> None:
    client = AIOKafkaAdminClient(**client_options(bootstrap, security), request_timeout_ms=5000)
    try:
        await client.start()
    finally:
        await client.close()


async def _set_password(secured: SecuredKafka, security: KafkaSecurity, password: str) -> None:
    """Change the password of a user, and wait until the broker, which hears of it later, accepts it."""
    assert security.password_file is not None
    await set_passwords(secured.bootstrap, {security.user: password})
    file = security.password_file.with_name("changed")
    file.write_text(password)
    changed = _changed(security, password_file=file)
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(KafkaRefusedError):
                await _connect(secured.bootstrap, changed)
                return
            await asyncio.sleep(0.1)


def _changed(security: KafkaSecurity, **changes: object) -> KafkaSecurity:
    return KafkaSecurity.model_validate(security.model_dump() | changes)


async def test_a_wrong_password_is_named(secured: SecuredKafka, tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("wrong")
    security = _changed(secured.security("egest"), password_file=tmp_path / "wrong")
    with pytest.raises(
        KafkaRefusedError, match=r"refuses the user s\.egest \(SCRAM-SHA-512\).*PASSWORD_FILE"
    ):
        await _connect(secured.bootstrap, security)


async def test_a_mechanism_that_the_broker_lacks_is_named(secured: SecuredKafka) -> None:
    security = _changed(secured.security("egest"), mechanism="PLAIN")
    with pytest.raises(KafkaRefusedError, match="does not enable HIFI_KAFKA_SECURITY_MECHANISM=PLAIN"):
        await _connect(secured.bootstrap, security)


async def test_a_certificate_of_an_unknown_authority_is_refused(
    secured: SecuredKafka, tmp_path: Path
) -> None:
    other_credentials = ClusterCredentials(tmp_path / "other")
    other_credentials.prepare()
    security = _changed(secured.security("egest"), ca_file=other_credentials.ca)
    with pytest.raises(KafkaRefusedError, match=r"certificate is refused: .*HIFI_KAFKA_SECURITY_CA_FILE"):
        await _connect(secured.bootstrap, security)


async def test_a_certificate_for_another_host_is_refused(secured: SecuredKafka) -> None:
    address = secured.bootstrap.replace("127.0.0.1", "127.0.0.2")
    async with _forward(address, secured.bootstrap), asyncio.timeout(20):
        with pytest.raises(KafkaRefusedError, match="certificate is refused: IP address mismatch"):
            await _connect(address, secured.security("egest"))


async def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    credentials = ClusterCredentials(tmp_path)
    credentials.prepare([ADMIN])
    credentials.replace_broker_certificate(datetime.now(UTC) - timedelta(days=1))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(credentials.broker)
    port = free_port()
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port, ssl=context):
        with pytest.raises(KafkaRefusedError, match="certificate is refused: certificate has expired"):
            await _connect(f"127.0.0.1:{port}", credentials.security(ADMIN))


@pytest.mark.parametrize("kind", ["none", "expired", "unknown"])
async def test_a_client_certificate_that_the_broker_refuses_is_named(
    secured: SecuredKafka, tmp_path: Path, kind: str
) -> None:
    """The controller's listener uses mutual TLS."""
    port = secured.cluster._loaded.ports[0].controller
    security = KafkaSecurity(protocol="SSL", ca_file=secured.credentials.ca)
    if kind != "none":
        signer = secured.credentials
        if kind == "unknown":
            signer = ClusterCredentials(tmp_path / "other")
            signer.prepare()
        not_after = datetime.now(UTC) - timedelta(days=1) if kind == "expired" else None
        key, certificate = signer.certificate(BROKER, not_after)
        write_secret(tmp_path / "key.pem", key)
        write_secret(tmp_path / "certificate.pem", certificate)
        security = _changed(
            security, key_file=tmp_path / "key.pem", certificate_file=tmp_path / "certificate.pem"
        )
    with pytest.raises(KafkaRefusedError, match="the broker refuses the client's certificate"):
        await _connect(f"127.0.0.1:{port}", security)


async def test_without_kafka_the_error_is_not_about_credentials(secured: SecuredKafka) -> None:
    with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
        await _connect(f"127.0.0.1:{free_port()}", secured.security("egest"))


async def test_a_replaced_password_keeps_connections_and_new_clients_use_it(
    secured: SecuredKafka, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("first")
    security = _changed(secured.security("ingest"), password_file=file)
    await _set_password(secured, security, "first")
    async with secured.client(AIOKafkaProducer, security, acks="all") as old_producer:
        await old_producer.send_and_wait(secured.topics.raw, b"{}", key=b"k", partition=0)
        await _set_password(secured, security, "second")
        await old_producer.send_and_wait(secured.topics.raw, b"{}", key=b"k", partition=0)
        with pytest.raises(KafkaRefusedError, match=r"refuses the user s\.ingest"):
            await _connect(secured.bootstrap, security)
        file.write_text("second")
        await _connect(secured.bootstrap, security)
        await old_producer.send_and_wait(secured.topics.raw, b"{}", key=b"k", partition=0)


@pytest.mark.parametrize("credential", ["password", "authority"])
@pytest.mark.more
async def test_a_client_connects_again_with_replaced_credentials(
    secured: SecuredKafka, tmp_path: Path, credential: str
) -> None:
    """The client was made before; all of its connections end with the broker."""
    (tmp_path / "password").write_text("first")
    (tmp_path / "ca.pem").write_text(secured.credentials.ca.read_text())
    security = _changed(
        secured.security("normalize"), password_file=tmp_path / "password", ca_file=tmp_path / "ca.pem"
    )
    await _set_password(secured, security, "first")
    options = {"acks": "all", "request_timeout_ms": 5000}
    async with secured.client(AIOKafkaProducer, security, **options) as client:
        await client.send_and_wait(secured.topics.normalized, b"1", key=b"k", partition=0)
        if credential == "password":
            (tmp_path / "password").write_text("second")
            await _set_password(secured, security, "second")
        else:
            secured.replace_authority()
            (tmp_path / "ca.pem").write_text(secured.credentials.ca.read_text())
        await secured.cluster.stop_broker(1)
        await secured.cluster.start_broker(1)
        async with asyncio.timeout(60):
            while True:
                try:
                    await client.send_and_wait(secured.topics.normalized, b"2", key=b"k", partition=0)
                    break
                except KafkaError:
                    await asyncio.sleep(0.1)


class OAuthCluster(KafkaCluster):
    """A secured broker that takes signed access tokens too."""

    def __init__(self, folder: Path, signer: TokenSigner) -> None:
        super().__init__(folder, secure=True, jvm_flags=[signer.jvm_flag])
        self._signer = signer

    def _write_settings(self, file: Path, broker: int, log: Path) -> None:
        super()._write_settings(file, broker, log)
        with file.open("a") as settings:
            settings.write("sasl.enabled.mechanisms=SCRAM-SHA-512,OAUTHBEARER\n")
            settings.writelines(
                f"{name}={value}\n" for name, value in self._signer.broker_settings("broker").items()
            )


async def test_a_broker_takes_a_valid_token_and_the_refusal_of_another_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("pw")
    signer = TokenSigner(tmp_path / "keys.json")
    async with (
        OAuthCluster(tmp_path / "kafka", signer) as cluster,
        running_endpoint(TokenEndpoint()) as endpoint,
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
        endpoint.make_token = lambda _: signer.token(3600)
        async with AIOKafkaProducer(**client_options(cluster.bootstrap, security), acks="all") as producer:
            with pytest.raises(TopicAuthorizationFailedError):  # it has authenticated, and may do nothing
                await producer.send_and_wait("any", b"")
        endpoint.make_token = lambda _: "not-a-token"
        refused_client = AIOKafkaAdminClient(**client_options(cluster.bootstrap, security))
        with pytest.raises(KafkaRefusedError, match=r"refuses the access token \(OAUTHBEARER\)"):
            await refused_client.start()
        await refused_client.close()


@asynccontextmanager
async def _forward(address: str, target: str) -> AsyncIterator[None]:
    """Accept connections at an address and forward them."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = target.split(":")
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer), return_exceptions=True)

    host, port = address.split(":")
    async with await asyncio.start_server(serve, host, int(port)):
        yield
