"""view on a secured Kafka, as the user that its ACLs are for: it reads rows, and learns until when it is complete."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import aiohttp
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.support.kafka.secured_kafka import SecuredKafka
from tests.support.stream_process import free_port, readyz
from tests.support.view.row_records import data, headers
from tests.support.view.view_stream import KEY, PIPE, VIEW, ViewClient

from hifi.kafka.admin import create_topics
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import stream_record
from hifi.pipe.revision import pipe_record
from hifi.runtime.clock import now_us
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.secured_stream import secure_stream


async def write(
    secured: SecuredKafka, role: str, topic: str, key: bytes | None, value: bytes | None, names: object = ()
) -> None:
    """Write a record as the user of a role."""
    async with secured.client(AIOKafkaProducer, secured.security(role)) as producer:
        await producer.send_and_wait(topic, value, key=key, headers=names, partition=0)


async def test_the_user_of_view_may_do_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "pipes").mkdir()
    (tmp_path / "pipes" / "view.yaml").write_text(VIEW.replace("{pipe: flights}", "{pipe: flights, at: raw}"))
    (tmp_path / "pipes" / "other.yaml").write_text(VIEW.replace("flights-now", "behind"))
    topics, admin, port = Topics("s"), free_port(), free_port()
    async with KafkaCluster(tmp_path / "kafka", secure=True) as cluster:
        assert cluster.credentials is not None
        await secure_stream(cluster.bootstrap, topics, cluster.credentials, None)
        await create_topics(cluster.bootstrap, topics, partitions=1, replication=1)
        secured = SecuredKafka(cluster, topics)
        for record in (stream_record(1), pipe_record(Pipe.model_validate(PIPE))):
            await write(secured, "publisher", topics.pipes, record.key, record.value)
        value = data(flight="UA1", delay=7)
        await write(secured, "ingest", topics.raw, b"k", value, headers(0, accepted_us=now_us()))
        environment = os.environ | secured.security("view").environment
        environment |= {
            "HIFI_KAFKA": cluster.bootstrap,
            "HIFI_STREAM": "s",
            "HIFI_PORT": str(admin),
            "HIFI_VIEW_PORT": str(port),
            "HIFI_VIEW_DECLARATIONS": str(tmp_path / "pipes"),
            "HIFI_VIEW_DATA": str(tmp_path / "views"),
            "HIFI_PIPES_RAW_VIEWS": "flights-now",
            "TEST_VIEW_KEY": KEY,
        }
        log = tmp_path / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [Path(sys.executable).with_name("hifi-view")], env=environment, stdout=output, stderr=output
            )
        try:
            async with aiohttp.ClientSession() as session:
                client = ViewClient(port, session)
                async with asyncio.timeout(60):
                    while "view flights-now" in readyz(admin)[1].get("waiting", {"view flights-now"}):
                        assert process.poll() is None, log.read_text()
                        await asyncio.sleep(0.1)
                assert [row["delay"] for row in await client.rows()] == [7]
                # What is in `raw` only is not behind normalize, whose offsets the user may see.
                assert (await client.ask("/v1/views/behind"))[1]["complete_until"] == "none"
                partition = TopicPartition(topics.raw, 0)
                security, group = secured.security("normalize"), topics.group("normalize")
                async with secured.client(AIOKafkaConsumer, security, group_id=group) as consumer:
                    consumer.assign([partition])
                    await consumer.commit({partition: 1})
                async with asyncio.timeout(60):
                    while (await client.ask("/v1/views/behind"))[1]["state"] != "live":
                        await asyncio.sleep(0.1)
            assert "Authorization" not in log.read_text()
        finally:
            process.terminate()
            assert process.wait(30) == 0
