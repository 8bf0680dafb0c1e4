"""A source whose cluster has SASL, TLS and an authorizer."""

from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.support.collect.collected_stream import collected_stream, until
from tests.support.stream_process import readyz

from hifi.kafka.security import client_options
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.credentials import ADMIN


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[KafkaCluster]:
    """One secured broker."""
    cluster = KafkaCluster(tmp_path / "kafka", secure=True)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()


@pytest.mark.more
async def test_a_secured_cluster_is_read_with_the_credentials_of_the_pipe_alone(
    kafka: str, secured: KafkaCluster, log: Path, tmp_path: Path
) -> None:
    assert secured.credentials is not None
    security = secured.credentials.security(ADMIN)
    admin = AIOKafkaAdminClient(**client_options(secured.bootstrap, security))
    await admin.start()
    await admin.create_topics([NewTopic("orders", 2, 1)])
    await admin.close()
    producer = AIOKafkaProducer(**client_options(secured.bootstrap, security))
    await producer.start()
    try:
        for number in range(20):
            await producer.send_and_wait("orders", orjson.dumps({"n": number}))
    finally:
        await producer.stop()
    wrong_password_file = tmp_path / "wrong"
    wrong_password_file.write_text("no such password")
    async with collected_stream(kafka, log) as stream:
        _, ready = await stream.start("collect")
        for password in (wrong_password_file, security.password_file):
            credentials = security.model_copy(update={"password_file": password})
            declared = credentials.model_dump(mode="json", exclude_defaults=True)
            pipe = stream.pipe(bootstrap=secured.bootstrap, topic="orders", security=declared)
            await stream.publish(pipe)
            if password == wrong_password_file:
                await until(lambda: "source of orders: topic" in readyz(ready)[1]["warnings"])
                assert await stream.all(stream.topics.raw) == []
        raw = await stream.read(stream.topics.raw, lambda raw: len(raw) >= 20)
        assert sorted(orjson.loads(record.value)["n"] for record in raw) == [*range(20)]
