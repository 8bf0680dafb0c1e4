"""Fixtures of the tests of Kafka destinations."""

import asyncio
import uuid
from collections.abc import Iterator

import pytest
from tests.support.kafka.out_topic import KeyedTopic

from hifi_infra.kafka.cluster import KafkaCluster


@pytest.fixture(scope="session")
def destination_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A Kafka of this session that may be frozen."""
    cluster = KafkaCluster(tmp_path_factory.mktemp("destination"))
    with asyncio.Runner() as runner:
        runner.run(cluster.start())
        try:
            yield cluster
        finally:
            runner.run(cluster.kill())


@pytest.fixture
async def kafka_topic(destination_cluster: KafkaCluster) -> KeyedTopic:
    topic = KeyedTopic(destination_cluster, "out." + uuid.uuid4().hex[:12])
    await topic.create()
    return topic
