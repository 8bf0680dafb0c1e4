"""A Kafka destination whose cluster has SASL, TLS and an authorizer."""

from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.support.egest.egest_stream import connector_destination

from hifi.delivery.installed_kinds import read_settings
from hifi.delivery.kind import DestinationWriter, OutboundEvent, WriterContext
from hifi.kafka.security import KafkaSecurity, client_options
from hifi.pipe.model import Pipe
from hifi.runtime.errors import HifiError
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.credentials import ADMIN

TOPIC = "out"


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[KafkaCluster]:
    """One secured broker with the topic."""
    cluster = KafkaCluster(tmp_path / "kafka", secure=True)
    try:
        await cluster.start()
        admin = AIOKafkaAdminClient(**client_options(cluster.bootstrap, admin_security(cluster)))
        await admin.start()
        try:
            await admin.create_topics([NewTopic(TOPIC, 1, 1)])
        finally:
            await admin.close()
        yield cluster
    finally:
        await cluster.stop()


def admin_security(cluster: KafkaCluster) -> KafkaSecurity:
    assert cluster.credentials is not None
    return cluster.credentials.security(ADMIN)


def writer(cluster: KafkaCluster, security: KafkaSecurity) -> DestinationWriter:
    settings = {
        "bootstrap": cluster.bootstrap,
        "topic": TOPIC,
        "security": security.model_dump(mode="json", exclude_defaults=True),
    }
    source = {"keys": [{"sha256": "0" * 64}]}
    destination = {"name": "d", "kind": "kafka", "settings": settings}
    pipe = Pipe.model_validate({"pipe": "flights", "source": source, "destinations": [destination]})
    kind, kind_settings = read_settings(connector_destination(pipe))
    return kind.open(kind_settings, WriterContext("s", "flights", "d", 16, 10.0))


def outbound(offset: int) -> OutboundEvent:
    return OutboundEvent(
        orjson.dumps(offset), "application/json", {"id": f"i{offset}"}, b"k", "0a" * 16, 0, offset, 0
    )


@pytest.mark.more
async def test_a_secured_cluster_gets_each_event_once_and_refuses_who_has_no_credentials(
    secured: KafkaCluster, tmp_path: Path
) -> None:
    security = admin_security(secured)
    for offsets in ([1, 2], [1, 2, 3]):  # the second writer reads what the first one wrote
        kafka_writer = writer(secured, security)
        await kafka_writer.write([outbound(offset) for offset in offsets])
        await kafka_writer.close()
    wrong_password_file = tmp_path / "wrong"
    wrong_password_file.write_text("no such password")
    refused_writer = writer(secured, security.model_copy(update={"password_file": wrong_password_file}))
    with pytest.raises((HifiError, OSError)):
        await refused_writer.write([outbound(4)])
    await refused_writer.close()
    consumer = AIOKafkaConsumer(
        TOPIC,
        **client_options(secured.bootstrap, security),
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        values = [orjson.loads((await consumer.getone()).value) for _ in range(3)]
    finally:
        await consumer.stop()
    assert values == [1, 2, 3]
