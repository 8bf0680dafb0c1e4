"""`hifi backup` and `hifi restore`: a stream's declared state in a new Kafka, with the real services on it."""

import asyncio
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import aiohttp
import orjson
import pytest
from aiokafka import TopicPartition
from tests.support.rollout.controlled_stream import WITHIN_S, ControlledStream, controlled, ended, pipe

from hifi.control.principals.audit import Audit
from hifi.control.principals.principal import Role
from hifi.control.principals.principal_store import create_principal
from hifi.control.request import RequestKind
from hifi.control.rollout_status import RolloutState
from hifi.kafka.clients import topic_consumer
from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import TopicFollower
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.ports import free_port
from hifi_manage.schemas.changes import registration
from hifi_manage.schemas.registered import SchemaBody
from hifi_manage.schemas.schema_store import SchemaStore

POSITION = b"flights;source-0"


async def hifi(stream: ControlledStream, *arguments: str, fails: bool = False) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hifi_cli",
        *arguments,
        "--kafka",
        stream.kafka,
        "--stream",
        stream.topics.stream,
        env=os.environ | {"HIFI_CONTROL": stream.control.control, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 100)
    assert (process.returncode != 0) is fails, output.decode()
    return output.decode()


async def write_position(stream: ControlledStream) -> None:
    """Write a position as normalize does."""
    producer = Producer(stream.kafka, "test")
    await producer.start()
    figures = {"highest": 41, "through": 900, "runs": [[880, "r", 40]]}
    await producer.send_and_wait(
        stream.topics.source_positions, 1, [Record(POSITION, orjson.dumps(figures), [])]
    )
    await producer.stop()


async def registered_id(stream: ControlledStream, text: str) -> int:
    """Register a schema as manage does; returns its id."""
    store = SchemaStore(stream.kafka, stream.control.schemas, stream.control.registrar, "test")
    await store.start()
    try:
        change = await store.change(partial(registration, subject=text, body=SchemaBody(f'"{text}"')))
    finally:
        await store.stop()
    return int(change.answer["id"])


async def positions(stream: ControlledStream) -> dict[int, dict[bytes, dict[str, object]]]:
    by_partition: dict[int, dict[bytes, dict[str, object]]] = {}
    partitions = [TopicPartition(stream.topics.source_positions, number) for number in range(2)]
    async with topic_consumer(stream.kafka, "test", isolation_level="read_committed") as consumer:
        async for records in read_ranges(consumer, await offset_ranges(consumer, partitions)):
            for record in records:
                by_partition.setdefault(record.partition, {})[record.key] = orjson.loads(record.value)
    return by_partition


async def principal_of_token(stream: ControlledStream, folder: Path, token: str) -> dict[str, object]:
    """Ask a real management API."""
    port = free_port()
    settings = {
        "HIFI_KAFKA": stream.kafka,
        "HIFI_STREAM": stream.topics.stream,
        "HIFI_CONTROL": stream.control.control,
        "HIFI_PORT": str(free_port()),
        "HIFI_MANAGE_PORT": str(port),
    }
    with (folder / "manage.log").open("wb") as log:
        manage = subprocess.Popen(
            [sys.executable, "-m", "hifi_manage"], env=os.environ | settings, stdout=log, stderr=log
        )
    stream.processes.append(manage)
    end_s = time.monotonic() + WITHIN_S
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {token}"}) as session:
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/api/v1/me") as answer:
                    if answer.status == 200:
                        account: dict[str, object] = orjson.loads(await answer.read())
                        return account
            except aiohttp.ClientError:
                pass
            assert time.monotonic() < end_s, (folder / "manage.log").read_text()
            await asyncio.sleep(0.1)


@pytest.mark.timeout(400)
@pytest.mark.more
async def test_a_backup_restored_in_a_new_kafka_has_the_same_pipes_rollout_principals_and_positions(
    kafka, tmp_path
):
    file = tmp_path / "backup.ndjson"
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    async with controlled(kafka, tmp_path / "old") as old_stream:
        old_stream.environment["HIFI_ROLLOUT_PHASE_S"] = "600"
        old_stream.run()
        await old_stream.declare(pipe("n", "other"), "other")  # so that the offsets differ after the restore
        await old_stream.declare(None, "other")
        await old_stream.declare(pipe("a"))
        await old_stream.status(ended(RolloutState.IN_FORCE, 2))
        await old_stream.declare(pipe("b"))
        ramping_status = await old_stream.status(lambda status: status.state is RolloutState.RAMPING)
        await old_stream.ask(RequestKind.PAUSE, ramping_status)
        paused_status = await old_stream.status(lambda status: status.state is RolloutState.PAUSED)
        token = await create_principal(
            kafka, old_stream.control, "ann", Role.ADMIN, author="test", at_us=now_us(), pipes=("flights",)
        )
        await write_position(old_stream)
        assert await registered_id(old_stream, "string") == 1
        pipes = orjson.loads(await hifi(old_stream, "pipes", "--json"))
        await hifi(old_stream, "backup", str(file))
    assert token.encode() not in file.read_bytes()

    cluster = KafkaCluster(tmp_path / "kafka")
    await cluster.start()
    try:
        async with controlled(
            cluster.bootstrap, tmp_path / "new", stream=old_stream.topics.stream
        ) as restored_stream:
            output = await hifi(restored_stream, "restore", str(file))
            assert {"pipes", "declared", "requests", "principals", "source-positions"} <= set(output.split())
            assert "restart it now" in output
            assert orjson.loads(await hifi(restored_stream, "pipes", "--json")) == pipes
            assert await registered_id(restored_stream, "string") == 1
            assert await registered_id(restored_stream, "long") == 2
            assert await positions(restored_stream) == {
                1: {POSITION: {"highest": 41, "through": -1, "runs": []}}
            }
            audit = Audit()
            follower = TopicFollower(
                restored_stream.kafka, "test", {restored_stream.control.audit: audit.take}
            )
            await follower.start()
            await follower.stop()
            assert [(entry.what, entry.subject) for entry in audit.entries.values()] == [
                ("create", "principal/ann"),
                ("restore", f"stream/{restored_stream.topics.stream}"),
            ]

            restored_stream.run()
            restored_status = await restored_stream.status(lambda status: status.state is RolloutState.PAUSED)
            assert (restored_status.share, restored_status.revision) == (
                paused_status.share,
                paused_status.revision,
            )
            await restored_stream.ask(RequestKind.RESUME, restored_status)
            await restored_stream.status(ended(RolloutState.IN_FORCE, restored_status.declaration))
            flights = (await restored_stream.pipes()).pipes["flights"]
            assert (flights.pipe, flights.number) == (pipe("b"), 2)
            assert (await principal_of_token(restored_stream, tmp_path, token))["name"] == "ann"

            refusal = await hifi(restored_stream, "restore", str(file), fails=True)
            assert "is not empty" in refusal
            assert "--force" in refusal
            await hifi(restored_stream, "restore", str(file), "--force")
            restored_flights = (await restored_stream.pipes()).pipes["flights"]
            assert (restored_flights.pipe, restored_flights.number) == (pipe("a"), 3)
            await restored_stream.status(
                lambda status: status.declaration > restored_status.declaration and status.share > 0
            )
    finally:
        await cluster.stop()
