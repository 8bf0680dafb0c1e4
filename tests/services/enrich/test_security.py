"""Enrich on a Kafka that asks for a client certificate, a password or an access token.

Spark's clients are Java clients with options of their own. SCRAM, which `hifi up --secure` uses, has tests on meshes.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from tests.support.enrich.enrich_process import readyz, start
from tests.support.enrich.running_instance import TIMEOUT_S, LiveStream
from tests.support.enrich.spark_bench import make_pipe
from tests.support.token_endpoint import TokenEndpoint, TokenSigner, running_endpoint

from hifi.kafka.security import KafkaSecurity, client_options
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.credentials import ClusterCredentials, write_secret
from hifi_infra.ports import free_port

pytestmark = [pytest.mark.timeout(300), pytest.mark.more]
SESSION_S = 5
"""Time after which the broker ends a session whose client has not authenticated again, and a token has expired."""
PREFIX = "HIFI_KAFKA_SECURITY_"


class OpenCluster(KafkaCluster):
    """A broker with plaintext, TLS that asks for a client certificate, and SASL with a password or an access token."""

    def __init__(self, folder: Path, credentials: ClusterCredentials, signer: TokenSigner) -> None:
        super().__init__(folder, jvm_flags=[signer.jvm_flag])
        self.files = credentials
        self.signer = signer
        self.tls = free_port()
        self.sasl = free_port(but={self.tls})

    def _write_settings(self, file: Path, broker: int, log: Path) -> None:
        super()._write_settings(file, broker, log)
        ports = self._loaded.ports[0]
        clients = f"BROKER://127.0.0.1:{ports.broker},TLS://127.0.0.1:{self.tls},SASL://127.0.0.1:{self.sasl}"
        settings = {
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{ports.controller}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,SASL:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.files.broker,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.files.ca,
            "listener.name.tls.ssl.client.auth": "required",
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "listener.name.sasl.plain.sasl.jaas.config": (
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_me="pw";'
            ),
            **self.signer.broker_settings("sasl"),
            "listener.name.sasl.oauthbearer.connections.max.reauth.ms": SESSION_S * 1000,
        }
        with file.open("a") as settings_file:
            settings_file.writelines(f"{name}={value}\n" for name, value in settings.items())


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[OpenCluster]:
    credentials = ClusterCredentials(tmp_path / "credentials")
    credentials.prepare()
    signer = TokenSigner(tmp_path / "keys.json")
    async with OpenCluster(tmp_path / "kafka", credentials, signer) as open_cluster:
        yield open_cluster


@asynccontextmanager
async def running_enrich(stream: LiveStream, **settings: str) -> AsyncIterator[None]:
    port = free_port()
    process = await start(stream, port, HIFI_ENRICH_TRIGGER="real-time", **settings)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while (await asyncio.to_thread(readyz, port))[0] != 200:
                assert process.returncode is None
                await asyncio.sleep(0.1)
        yield
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
        assert process.returncode == 0, errors.decode()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            print((await process.communicate())[1].decode())


async def pass_once(stream: LiveStream) -> None:
    numbers = await stream.send(*[b'{"n":1}'] * 10)
    outcomes = await stream.outcomes(numbers)
    assert {len(outcomes[number]) for number in numbers} == {1}


@pytest.mark.parametrize("kind", ["certificate", "password"])
async def test_events_pass_with_a_client_certificate_or_a_password(
    cluster: OpenCluster, tmp_path: Path, kind: str
) -> None:
    stream = await LiveStream(cluster.bootstrap).create(make_pipe("p", fields={"n": "int"}))
    settings = {f"{PREFIX}CA_FILE": str(cluster.files.ca)}
    if kind == "certificate":
        key, certificate = cluster.files.certificate("enrich")
        write_secret(tmp_path / "key.pem", key)
        write_secret(tmp_path / "certificate.pem", certificate)
        settings |= {
            "HIFI_KAFKA": f"127.0.0.1:{cluster.tls}",
            f"{PREFIX}PROTOCOL": "SSL",
            f"{PREFIX}KEY_FILE": str(tmp_path / "key.pem"),
            f"{PREFIX}CERTIFICATE_FILE": str(tmp_path / "certificate.pem"),
        }
    else:
        write_secret(tmp_path / "password", "pw")
        settings |= {
            "HIFI_KAFKA": f"127.0.0.1:{cluster.sasl}",
            f"{PREFIX}PROTOCOL": "SASL_SSL",
            f"{PREFIX}MECHANISM": "PLAIN",
            f"{PREFIX}USER": "me",
            f"{PREFIX}PASSWORD_FILE": str(tmp_path / "password"),
        }
    async with running_enrich(stream, **settings):
        await pass_once(stream)


async def test_events_pass_while_access_tokens_expire_and_the_broker_ends_sessions(
    cluster: OpenCluster, tmp_path: Path
) -> None:
    """The same for a producer of aiokafka, which cannot authenticate again: it connects again."""
    write_secret(tmp_path / "secret", "pw")
    stream = await LiveStream(cluster.bootstrap).create(make_pipe("p", fields={"n": "int"}))
    endpoint = TokenEndpoint(life_s=SESSION_S, make_token=lambda _: cluster.signer.token(SESSION_S))
    async with running_endpoint(endpoint):
        security = KafkaSecurity(
            protocol="SASL_SSL",
            mechanism="OAUTHBEARER",
            ca_file=cluster.files.ca,
            user="me",
            password_file=tmp_path / "secret",
            token_url=endpoint.url,
        )
        settings = {
            "HIFI_KAFKA": f"127.0.0.1:{cluster.sasl}",
            f"{PREFIX}PROTOCOL": "SASL_SSL",
            f"{PREFIX}MECHANISM": "OAUTHBEARER",
            f"{PREFIX}CA_FILE": str(cluster.files.ca),
            f"{PREFIX}USER": "me",
            f"{PREFIX}PASSWORD_FILE": str(tmp_path / "secret"),
            f"{PREFIX}TOKEN_URL": endpoint.url,
        }
        producer = AIOKafkaProducer(**client_options(settings["HIFI_KAFKA"], security), acks="all")
        async with running_enrich(stream, **settings), producer:
            requests_before = len(endpoint.requests)
            async with asyncio.timeout(TIMEOUT_S):
                while len(endpoint.requests) < requests_before + 12:
                    await pass_once(stream)
                    await producer.send_and_wait(stream.topics.receipts, b"", key=b"k", partition=0)
