"""Instances of two neighbouring releases work side by side: every accepted event is delivered once.

Both deliver, and observe of either names the releases that ingest runs on.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from tests.releases.neighbours import AFTER, write_release_after, write_release_before

from hifi.pipe.model import Pipe
from hifi.record.fields import fields
from hifi.record.headers import RELEASE
from hifi.runtime.errors import HifiError
from hifi.runtime.release import VERSION
from hifi_cli.demo.flights_demo import Demo
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.workspace import Workspace
from hifi_cli.mesh_state.observe_api import ObserveApi, read_token
from hifi_infra.mesh.health_probe import get
from hifi_infra.mesh.mesh import Mesh, processes
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

RATE, SECONDS, PARTITIONS = 100, 40, 4
MIXED = ("ingest", "normalize", "enrich", "egest", "retrier", "observe")
WITHIN_S = 240


@dataclass(slots=True)
class MixedLoad(LoadTest):
    """A load on a mesh in which the second instance of each service is of another release."""

    release: Path

    async def start(self, shape: Callable[[list[Pipe]], list[Pipe]] = list) -> None:
        """Start the mesh, then the second instances, and wait until all are ready."""
        await super(MixedLoad, self).start(shape)
        for service in MIXED:
            await self.mesh.fleet.set_release(f"{service}-2", str(self.release), "side by side")
        await self.mesh.wait_ready(WITHIN_S)


@pytest.mark.more  # without a mesh: test_recorded_bytes
@pytest.mark.timeout(600)
@pytest.mark.parametrize("write", [write_release_before, write_release_after])
async def test_two_neighbouring_releases_deliver_every_event_once_side_by_side(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    neighbour = tmp_path / "neighbour"
    write(neighbour)
    workspace = Workspace.at(tmp_path)
    plan = Plan(
        tmp_path,
        port=workspace.ingest_port,
        partitions=PARTITIONS,
        scale=dict.fromkeys(MIXED, 1),
        console_port=free_port(but={workspace.ingest_port, workspace.destination_port}),
        env={**workspace.secrets, "HIFI_OBSERVE_SETTLE_S": "10"},
    )
    mesh = Mesh(plan)
    demo = Demo(MixedLoad(workspace, mesh, neighbour), RATE, SECONDS)
    try:
        running = asyncio.create_task(demo.run())
        while demo.load_test.progress.sent < RATE * 5:
            assert not running.done(), await running
            await asyncio.sleep(0.1)
        for name in ("normalize-1", "normalize-2", "egest-1", "egest-2"):
            assert await _assigned(mesh, name) == PARTITIONS / 2, name
        expected_releases = {VERSION, "" if write is write_release_before else AFTER}
        async with asyncio.timeout(WITHIN_S):
            while (await _status(mesh))["ingest_releases"] != sorted(expected_releases):
                assert not running.done(), await running
                await asyncio.sleep(0.2)
        await processes(mesh)["enrich-1"].kill()  # the one of the other release takes over
        numbers = await running
        async with asyncio.timeout(WITHIN_S):
            while (minutes := await _minutes(mesh))["delivered"] < numbers["delivered"]:
                await asyncio.sleep(1)
        assert await _receipt_releases(mesh, numbers["delivered"]) == expected_releases
        await demo.stop()
    finally:
        await demo.kill()
    wrong_counts = {name: numbers[name] for name in ("lost", "duplicates", "mismatched", "dead_lettered")}
    assert not any(wrong_counts.values()), numbers
    assert numbers["delivered"] == numbers["accepted"]
    # A busy machine may make ingest refuse some; they are not lost.
    assert numbers["accepted"] + numbers["refused"] + numbers["unanswered"] == RATE * SECONDS
    assert numbers["accepted"] > RATE * SECONDS / 2
    assert minutes["in"] == numbers["accepted"]
    assert minutes["lost"] == 0


async def _assigned(mesh: Mesh, name: str) -> float:
    """Partitions of its input topic that an instance has, from its metrics."""
    port = next(process.spec.port for process in mesh.all() if process.name == name)
    _, page = await get(port, "/metrics", timeout_s=10)
    topic = {"normalize": mesh.topics.raw, "egest": mesh.topics.enriched}[name.split("-", maxsplit=1)[0]]
    line = f'hifi_assigned_partitions{{topic="{topic}"}} '
    return next(
        float(sample[len(line) :]) for sample in page.decode().splitlines() if sample.startswith(line)
    )


async def _minutes(mesh: Mesh) -> dict[str, int]:
    """Sums over the closed minutes of observe."""
    answer = await asyncio.to_thread(_observe(mesh).get, "/api/v1/pipes/flights/minutes?last=60")
    return {key: sum(minute[key] for minute in answer["minutes"]) for key in ("in", "delivered", "lost")}


async def _status(mesh: Mesh) -> dict[str, Any]:
    """The status of the stream from observe; None: no answer."""
    try:
        return await asyncio.to_thread(_observe(mesh).get, "/api/v1/status")
    except HifiError:
        return {"ingest_releases": None}


def _observe(mesh: Mesh) -> ObserveApi:
    return ObserveApi(f"http://127.0.0.1:{mesh.plan.console_port}", read_token(mesh.plan.token))


async def _receipt_releases(mesh: Mesh, count: int) -> set[str]:
    """The releases that delivered, as at least `count` receipts tell; empty text: one before 0.1.0rc2."""
    tps = [TopicPartition(mesh.topics.receipts, number) for number in range(PARTITIONS)]
    releases: Counter[str] = Counter()
    async with (
        asyncio.timeout(WITHIN_S),
        AIOKafkaConsumer(bootstrap_servers=mesh.bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign(tps)
        while releases.total() < count:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                releases.update(fields(record.headers).get(RELEASE, b"").decode() for record in records)
    return set(releases)
