"""A cluster is started with the next version of Kafka on its data, and with the one before again: no record is lost."""

from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.stream_process import read_all

from hifi_infra.java.jars import kafka_versions
from hifi_infra.kafka.cluster import KafkaCluster

TOPIC = "upgraded"


async def write(cluster: KafkaCluster, text: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
    await producer.start()
    await producer.send_and_wait(TOPIC, text.encode())
    await producer.stop()


@pytest.mark.more  # it downloads the jars of the next version
async def test_records_survive_an_upgrade_and_the_way_back(tmp_path: Path) -> None:
    first, *_, last = kafka_versions()
    for version in (first, last, first):
        cluster = KafkaCluster(tmp_path / "kafka", version=version)
        async with cluster:
            (command,) = (process.argv for process in cluster.processes.values())
            assert any(f"kafka_2.13-{version}.jar" in word for word in command)
            if version == first and not (tmp_path / "made").exists():
                admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
                await admin.start()
                await admin.create_topics([NewTopic(TOPIC, 1, 1)])
                await admin.close()
                (tmp_path / "made").touch()
            await write(cluster, version)
            texts = [one.value.decode() for one in await read_all(cluster.bootstrap, TOPIC)]
    assert texts == [first, last, first]
