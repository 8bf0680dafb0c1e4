"""The Kafka that meshes and tests run on: real brokers, in folders of their own."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import (
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    UnknownTopicOrPartitionError,
)

from hifi.runtime.errors import Misconfigured
from hifi_infra.kafka import cluster as module
from hifi_infra.kafka.cluster import BrokerFailed, KafkaCluster
from hifi_infra.kafka.cluster_state import load_cluster_state
from hifi_infra.ports import free_port

WITHIN_S = 300
SEND_WITHIN_S = 120
"""Also while a leader is elected."""


async def create(bootstrap: str, topic: str, copies: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, copies)])
    finally:
        await admin.close()


async def send(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, request_timeout_ms=20_000
    )
    try:
        async with asyncio.timeout(SEND_WITHIN_S):
            await producer.start()
            for value in values:
                await producer.send_and_wait(topic, value, partition=0, timestamp_ms=1)
    finally:  # its stop hangs while Kafka does not acknowledge what it still holds (aiokafka's issue 1101)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(producer.stop(), 5)


async def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        async with asyncio.timeout(WITHIN_S):
            return [(await consumer.getone()).value for _ in range(count)]


async def until(condition: Callable[[], object], description: str) -> None:
    end_s = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < end_s, f"not within {WITHIN_S} s: {description}"
        await asyncio.sleep(0.02)


def processes_with(text: str) -> list[int]:
    """Processes with this text in their command line."""
    pids = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and any(
                text in argument for argument in process.cmdline()
            ):
                pids.append(process.pid)
    return pids


async def test_a_record_goes_in_and_comes_out_with_the_brokers_own_time(kafka: str, topic) -> None:
    name = await topic(3)
    async with AIOKafkaProducer(bootstrap_servers=kafka, acks="all", enable_idempotence=True) as producer:
        await producer.send_and_wait(name, b"hello", partition=2, timestamp_ms=1)
    async with AIOKafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(name, 2)])
        record = await consumer.getone()
    assert record.value == b"hello"
    assert record.timestamp_type == 1
    assert record.timestamp > 1_600_000_000_000


async def test_a_topic_that_nobody_created_does_not_appear(kafka: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka, request_timeout_ms=2000) as producer:
        with pytest.raises(UnknownTopicOrPartitionError):  # its request for metadata is what would create it
            await producer.send(f"nobody-{uuid.uuid4()}", b"")
        topics = (await producer.client.fetch_all_metadata()).topics()
        assert not [topic for topic in topics if topic.startswith("nobody-")]


@pytest.mark.more
async def test_the_same_cluster_comes_back_on_the_same_folder_and_ports(tmp_path: Path) -> None:
    async with KafkaCluster(tmp_path) as cluster:
        await create(cluster.bootstrap, "kept", 1)
        await send(cluster.bootstrap, "kept", b"first", b"second")
        address_before = (cluster.cluster_id, cluster.bootstrap)
    assert processes_with(str(tmp_path)) == []

    async with KafkaCluster(tmp_path) as restarted_cluster:
        assert (restarted_cluster.cluster_id, restarted_cluster.bootstrap) == address_before
        assert await read(restarted_cluster.bootstrap, "kept", 2) == [b"first", b"second"]
        await restarted_cluster.kill()
    assert processes_with(str(tmp_path)) == []

    port = int(address_before[1].partition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        async with KafkaCluster(tmp_path) as moved_cluster:
            assert moved_cluster.cluster_id == address_before[0]
            assert moved_cluster.bootstrap != address_before[1]
            assert await read(moved_cluster.bootstrap, "kept", 2) == [b"first", b"second"]


@pytest.mark.timeout(300)
async def test_three_brokers_accept_with_one_dead_refuse_with_two_and_lose_nothing(tmp_path: Path) -> None:
    async with KafkaCluster(tmp_path, brokers=3, heap_mb=256) as cluster:
        await create(cluster.bootstrap, "safe", 3)
        await send(cluster.bootstrap, "safe", b"by three")
        await cluster.kill_broker(1)
        assert not cluster.processes[1].running
        await send(cluster.bootstrap, "safe", b"by two")

        # Frozen rather than dead: two dead of three would also end the quorum that notices.
        cluster.pause_broker(2)
        with pytest.raises((NotEnoughReplicasError, NotEnoughReplicasAfterAppendError, TimeoutError)):
            async with asyncio.timeout(8):
                await send(cluster.address(3), "safe", b"by one")
        cluster.resume_broker(2)

        await cluster.start_broker(1)
        await send(cluster.bootstrap, "safe", b"by three again")
        values = await read(cluster.bootstrap, "safe", 3)
        assert values[:2] == [b"by three", b"by two"]
        assert values[2] in {b"by one", b"by three again"}  # the refused one was never promised to be absent

        await cluster.stop_broker(2)
        await send(cluster.bootstrap, "safe", b"by two again")
    assert processes_with(str(tmp_path)) == []


async def test_a_wanted_port_that_is_in_use_is_told(tmp_path: Path) -> None:
    port = free_port()
    refusal = pytest.raises(Misconfigured, match=f"port {port} .* in use")
    with socket.create_server(("127.0.0.1", port)), refusal:
        await KafkaCluster(tmp_path, ports=[port]).start()
    async with KafkaCluster(tmp_path, ports=[port]) as cluster:
        assert cluster.bootstrap == f"127.0.0.1:{port}"


async def test_a_folder_of_another_cluster_size_is_told(tmp_path: Path) -> None:
    load_cluster_state(tmp_path, 1, ())
    with pytest.raises(Misconfigured, match=r"holds a Kafka cluster of 1 broker\(s\), not 3"):
        await KafkaCluster(tmp_path, brokers=3).start()


async def test_a_damaged_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"cluster_id": 1')
    with pytest.raises(Misconfigured, match=r"cluster\.json is damaged"):
        await KafkaCluster(tmp_path).start()


async def test_two_clusters_on_one_folder_are_told_apart(tmp_path: Path) -> None:
    first_cluster = KafkaCluster(tmp_path)
    first_cluster._lock_folder()
    with pytest.raises(Misconfigured, match="in use by another running cluster"):
        await KafkaCluster(tmp_path).start()
    first_cluster._unlock_folder()


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="cannot be used"):
        await KafkaCluster(tmp_path / "file" / "data").start()


async def test_a_full_disk_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIN_FREE_BYTES", shutil.disk_usage(tmp_path).total + 1)
    with pytest.raises(Misconfigured, match="MiB left"):
        await KafkaCluster(tmp_path).start()
    assert not (tmp_path / "broker-1").exists()


async def test_a_broker_that_dies_at_start_is_quoted_and_nothing_stays(tmp_path: Path) -> None:
    async with KafkaCluster(tmp_path):
        meta = tmp_path / "broker-1" / "log" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    with pytest.raises(BrokerFailed) as failure:
        await KafkaCluster(tmp_path).start()
    assert "ended with code 1 while it started" in str(failure.value)
    assert str(tmp_path / "broker-1" / "kafka.log") in str(failure.value)
    assert "configured node id" in str(failure.value).partition("ends with:")[2]
    assert "\tat " not in str(failure.value)
    assert processes_with(str(tmp_path)) == []


async def test_a_heap_that_java_refuses_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match=r"ends with:\n.*\nToo small maximum heap"):
        await KafkaCluster(tmp_path, heap_mb=1).start()


async def test_a_format_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "kafka_command", lambda *_, **__: ["sh", "-c", "echo its words; exit 3"])
    with pytest.raises(
        BrokerFailed, match=r"format tool ended with code 3\. .*format\.log ends with:\nits words"
    ):
        await KafkaCluster(tmp_path).start()


async def test_a_broker_that_is_not_ready_in_time_is_ended_and_may_be_started_again(tmp_path: Path) -> None:
    cluster = KafkaCluster(tmp_path)
    with pytest.raises(BrokerFailed, match="was not ready within 0 s"):
        await cluster.start(timeout_s=0.01)
    assert processes_with(str(tmp_path)) == []
    await cluster.start()
    await cluster.stop()
    await cluster.stop()


async def test_a_start_that_was_cancelled_leaves_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    cluster = KafkaCluster(tmp_path)
    starting = asyncio.create_task(cluster.start())
    formatting = tmp_path / "formatting" / "format.log"
    await until(lambda: formatting.exists() or starting.done(), "it formats")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert processes_with(str(tmp_path)) == []
    assert not (tmp_path / "broker-1" / "log").exists()
    async with KafkaCluster(tmp_path) as cluster:
        assert json.loads((tmp_path / "cluster.json").read_text())["cluster_id"] == cluster.cluster_id


STARTS_A_BROKER = """
import asyncio, pathlib, sys
from hifi_infra.kafka.cluster import KafkaCluster
async def main():
    cluster = KafkaCluster(pathlib.Path(sys.argv[1]))
    await cluster.start()
    print(cluster.bootstrap, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_no_broker_outlives_a_program_that_was_killed_and_the_next_one_takes_over(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_A_BROKER, str(data)], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        bootstrap = program.stdout.readline().strip()
        await create(bootstrap, "kept", 1)
        await send(bootstrap, "kept", b"acknowledged")
        assert len(processes_with("kafka.Kafka")) >= 1
        os.kill(program.pid, signal.SIGKILL)
    await until(lambda: not processes_with(str(data)), "the broker is gone")
    async with KafkaCluster(data) as cluster:
        assert await read(cluster.bootstrap, "kept", 1) == [b"acknowledged"]
