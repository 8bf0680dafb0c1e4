"""A mesh under load goes to the next release, in the documented order, and back: every accepted event arrives once."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.releases.neighbours import write_release_after, write_release_before

from hifi.control.releases.desired_release import INSTALLED
from hifi_cli.demo.flights_demo import Demo
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.workspace import Workspace
from hifi_infra.mesh.mesh import Mesh, processes
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

RATE, SECONDS, PARTITIONS = 40, 300, 4
ORDER = ("observe", "retrier", "egest", "enrich", "normalize", "ingest")
"""As docs/deploy.md has it; the mesh of this test reads no sources."""
READY_S = 240


@pytest.mark.more
@pytest.mark.timeout(900)
@pytest.mark.parametrize("write", [write_release_before, write_release_after])
async def test_an_upgrade_under_load_and_back_loses_nothing_and_repeats_nothing(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    neighbour = str(tmp_path / "neighbour")
    write(Path(neighbour))
    older, newer = (neighbour, INSTALLED) if write is write_release_before else (INSTALLED, neighbour)
    workspace = Workspace.at(tmp_path)
    plan = Plan(
        tmp_path,
        port=workspace.ingest_port,
        partitions=PARTITIONS,
        scale={"normalize": 2, "egest": 2},
        console_port=free_port(but={workspace.ingest_port, workspace.destination_port}),
        env={**workspace.secrets, "HIFI_OBSERVE_SETTLE_S": "10"},
    )
    mesh = Mesh(plan)
    for service in ORDER:
        await mesh.set_default_release(service, older)
    demo = Demo(LoadTest(workspace, mesh), RATE, SECONDS)
    try:
        running = asyncio.create_task(demo.run())
        while demo.load_test.progress.sent < RATE:
            assert not running.done(), await running
            await asyncio.sleep(0.1)
        await _change(mesh, ORDER, newer)
        await processes(mesh)["normalize-2"].kill()
        await _change(mesh, ORDER[::-1], older)
        assert not running.done(), "the load ended before the last change: send for longer"
        numbers = await running
        await demo.stop()
    finally:
        await demo.kill()
    wrong_counts = {name: numbers[name] for name in ("lost", "duplicates", "mismatched", "dead_lettered")}
    assert not any(wrong_counts.values()), numbers
    assert numbers["delivered"] == numbers["accepted"] > 0


async def _change(mesh: Mesh, services: tuple[str, ...], release: str) -> None:
    """Replace the instances one after the other; the next begins when all are ready."""
    for service in services:
        for instance in list(mesh.fleet.instances[service]):
            await mesh.set_release(instance.name, release, "a test of an upgrade")
            await mesh.wait_ready(READY_S)
