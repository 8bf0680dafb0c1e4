"""A real secured broker with the users and ACLs of one stream."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.support.kafka.secured_kafka import CONTROL, SecuredKafka

from hifi.kafka.admin import create_topics
from hifi.kafka.topics import Topics
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.secured_stream import secure_stream


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """One broker with SASL_SSL and the authorizer; the stream `s` and its control plane with topics, users and ACLs."""
    cluster = KafkaCluster(tmp_path_factory.mktemp("secured"), secure=True)
    topics = Topics("s")

    async def start() -> None:
        await cluster.start()
        assert cluster.credentials is not None
        await secure_stream(cluster.bootstrap, topics, cluster.credentials, CONTROL)
        await create_topics(cluster.bootstrap, topics, partitions=1, replication=1)
        await create_topics(cluster.bootstrap, CONTROL, partitions=1, replication=1)

    with asyncio.Runner() as runner:
        try:
            runner.run(start())
            yield SecuredKafka(cluster, topics)
        finally:
            runner.run(cluster.stop())
