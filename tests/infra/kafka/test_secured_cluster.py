"""A mesh's own secured Kafka: certificates and passwords are made once, and a client without them is refused."""

import asyncio
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaConnectionError

from hifi.kafka.security import KafkaSecurity, client_options
from hifi.runtime.errors import Misconfigured
from hifi_infra.kafka.certificates import expires_within
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.credentials import ADMIN, ClusterCredentials

REPLICAS = {"min.insync.replicas": "2"}


# Faster: test_three_brokers_accept_with_one_dead_refuse_with_two_and_lose_nothing and the tests below
@pytest.mark.more
@pytest.mark.timeout(240)
async def test_three_secured_brokers_replicate_and_come_back_with_the_same_credentials(
    tmp_path: Path,
) -> None:
    async with KafkaCluster(tmp_path, brokers=3, heap_mb=256, secure=True) as cluster:
        await _create(cluster, "kept")
        async with AIOKafkaProducer(**client_options(cluster.bootstrap), acks="all") as producer:
            await producer.send_and_wait("kept", b"by three", partition=0)
        await cluster.kill_broker(1)
        await _write(cluster, b"by two")
        secrets_before = {file: file.read_bytes() for file in _secrets(tmp_path)}
    async with KafkaCluster(tmp_path, brokers=3, heap_mb=256, secure=True) as restarted_cluster:
        options = {"auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(**client_options(restarted_cluster.bootstrap), **options) as consumer:
            consumer.assign([TopicPartition("kept", 0)])
            async with asyncio.timeout(30):
                assert [(await consumer.getone()).value for _ in range(2)] == [b"by three", b"by two"]
    assert {file: file.read_bytes() for file in _secrets(tmp_path)} == secrets_before
    assert secrets_before
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in secrets_before)


async def test_a_client_without_credentials_is_refused(tmp_path: Path) -> None:
    async with KafkaCluster(tmp_path, secure=True) as cluster:
        for security in (
            KafkaSecurity(),
            KafkaSecurity(protocol="SSL", ca_file=tmp_path / "security" / "ca.pem"),
        ):
            options = client_options(cluster.bootstrap, security)
            client = AIOKafkaAdminClient(**options, request_timeout_ms=3000)
            with pytest.raises(KafkaConnectionError):
                await client.start()
            await client.close()


@pytest.mark.parametrize("secure", [True, False])
async def test_the_security_of_a_folder_is_fixed_at_its_first_start(tmp_path: Path, *, secure: bool) -> None:
    async with KafkaCluster(tmp_path, secure=secure):
        pass
    word = "with" if secure else "without"
    with pytest.raises(Misconfigured, match=f"start it {word} --secure, or choose another data folder"):
        await KafkaCluster(tmp_path, secure=not secure).start()


def test_the_certificate_is_replaced_before_it_expires_and_the_authority_stays(tmp_path: Path) -> None:
    credentials = ClusterCredentials(tmp_path / "security")
    credentials.prepare()
    authority, first_certificate = credentials.ca.read_text(), credentials.broker.read_text()
    credentials.prepare()
    assert credentials.broker.read_text() == first_certificate, "it is valid for a year"
    credentials.replace_broker_certificate(datetime.now(UTC) + timedelta(days=30))
    assert expires_within(credentials.broker.read_text(), timedelta(days=31))
    credentials.prepare()
    assert not expires_within(credentials.broker.read_text(), timedelta(days=300))
    assert credentials.ca.read_text() == authority


@pytest.mark.more
async def test_brokers_use_a_replaced_certificate_after_a_restart(tmp_path: Path) -> None:
    async with KafkaCluster(tmp_path, secure=True) as cluster:
        await _create(cluster, "kept", replication=1)
        credentials = ClusterCredentials(tmp_path / "security")
        credentials.replace_broker_certificate()
        await cluster.stop_broker(1)
        await cluster.start_broker(1)
        await _write(cluster, b"after")


async def _create(cluster: KafkaCluster, topic: str, replication: int = 3) -> None:
    admin = AIOKafkaAdminClient(**client_options(cluster.bootstrap))
    await admin.start()
    try:
        configs = REPLICAS if replication == 3 else {}
        await admin.create_topics([NewTopic(topic, 1, replication, topic_configs=configs)])
    finally:
        await admin.close()


async def _write(cluster: KafkaCluster, value: bytes) -> None:
    """Write as the super user, with bounded patience for a new leader."""
    assert cluster.credentials is not None
    security = cluster.credentials.security(ADMIN)
    async with asyncio.timeout(60):
        async with AIOKafkaProducer(**client_options(cluster.bootstrap, security), acks="all") as producer:
            await producer.send_and_wait("kept", value, partition=0)


def _secrets(folder: Path) -> list[Path]:
    return sorted(file for file in (folder / "security").rglob("*") if file.is_file())
