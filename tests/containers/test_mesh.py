"""The whole mesh with compose: accepted events arrive once while containers are killed, scaled and replaced.

The tests use one mesh, in order. Kills that `make chaos-quick` shows without containers have the marker `more`: here
one service and the broker stand for Docker's restart policy.
"""

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from stack import ROOT, ComposeMesh, SteadySender, all_arrived_once, inspect, run, until

MakeSender = Callable[[ComposeMesh], SteadySender]


@pytest.fixture(scope="module")
def mesh(make_mesh: Callable[..., ComposeMesh]) -> ComposeMesh:
    mesh = make_mesh("mesh")
    began = time.monotonic()
    mesh.up()
    print(f"up and ready after {time.monotonic() - began:.0f} s")
    return mesh


async def in_thread(*steps: Callable[[], object]) -> None:
    """Run compose commands one after another while the sender sends."""
    for step in steps:
        await asyncio.to_thread(step)
        await asyncio.sleep(3)


async def test_every_event_arrives_exactly_once(mesh: ComposeMesh, sender: MakeSender) -> None:
    one = sender(mesh)
    await one.send(10)
    all_arrived_once(mesh, one)


async def test_up_again_changes_nothing(mesh: ComposeMesh, sender: MakeSender) -> None:
    before = {service: mesh.containers(service) for service in ("kafka", "ingest", "enrich", "egest")}
    mesh.up()
    assert {service: mesh.containers(service) for service in before} == before
    one = sender(mesh)
    await one.send(2)
    all_arrived_once(mesh, one)


async def test_scaling_up_and_down_under_load_loses_and_repeats_nothing(
    mesh: ComposeMesh, sender: MakeSender
) -> None:
    def scale(normalize: int, egest: int) -> Callable[[], None]:
        return lambda: mesh.up(
            "--no-recreate", "--scale", f"normalize={normalize}", "--scale", f"egest={egest}"
        )

    one = sender(mesh)
    await one.send_while(in_thread(scale(3, 1), scale(3, 2), scale(1, 2), scale(1, 1)))
    all_arrived_once(mesh, one)


@pytest.mark.more  # without containers: tests of the assignor and the consumer
async def test_more_instances_than_partitions_are_ready_all_the_same(mesh: ComposeMesh) -> None:
    mesh.up("--no-recreate", "--scale", "retrier=6")
    assert mesh.health("retrier") == ["healthy"] * 6
    mesh.up("--no-recreate", "--scale", "retrier=1")


@pytest.mark.parametrize(
    "service",
    [
        "enrich",
        pytest.param("normalize", marks=pytest.mark.more),
        pytest.param("retrier", marks=pytest.mark.more),
    ],
)
async def test_a_killed_container_loses_and_repeats_nothing(
    mesh: ComposeMesh, sender: MakeSender, service: str
) -> None:
    one = sender(mesh)
    await one.send_while(in_thread(lambda: time.sleep(3), lambda: mesh.crash(service)))
    all_arrived_once(mesh, one)


async def test_a_killed_egest_repeats_at_most_what_it_was_sending(
    mesh: ComposeMesh, sender: MakeSender
) -> None:
    one = sender(mesh)
    await one.send_while(in_thread(lambda: time.sleep(3), lambda: mesh.crash("egest")))
    all_arrived_once(mesh, one, repeats=32)  # the pipe's concurrency


@pytest.mark.more  # without containers: `make chaos-quick` kills ingest
async def test_a_killed_ingest_keeps_what_it_accepted(mesh: ComposeMesh, sender: MakeSender) -> None:
    one = sender(mesh)
    await one.send_while(
        in_thread(lambda: time.sleep(3), lambda: mesh.crash("ingest"), lambda: time.sleep(5))
    )
    all_arrived_once(mesh, one)


@pytest.mark.parametrize("how", [pytest.param("restart", marks=pytest.mark.more), "kill"])
async def test_a_broker_that_comes_back_has_lost_nothing(
    mesh: ComposeMesh, sender: MakeSender, how: str
) -> None:
    def bounce() -> None:
        if how == "restart":
            mesh.compose("restart", "kafka")
        else:
            mesh.crash("kafka")
        until(lambda: mesh.health("kafka") == ["healthy"], "Kafka is healthy again")

    one = sender(mesh)
    await one.send_while(in_thread(lambda: time.sleep(3), bounce, lambda: time.sleep(10)))
    all_arrived_once(mesh, one)


@pytest.fixture(scope="module")
def changed_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with a change in every service."""
    tree = tmp_path_factory.mktemp("changed") / "hifi"
    tree.mkdir()
    for name in (".dockerignore", "pyproject.toml", "requirements", "libs", "services", "infra", "cli"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, tree / name)
    for entry in tree.glob("services/*/hifi_*/__init__.py"):
        entry.write_text(entry.read_text() + "\nCHANGED = True\n")
    return tree


async def test_a_new_image_rolls_through_under_load_and_loses_and_repeats_nothing(
    mesh: ComposeMesh, sender: MakeSender, changed_tree: Path
) -> None:
    services = ("ingest", "normalize", "enrich", "egest", "retrier", "observe")
    began = time.monotonic()
    run(
        str(changed_tree / "infra/docker/images.sh"),
        *services,
        env={"HIFI_TAG": "changed", "HIFI_COMMIT": "changed"},
    )
    print(f"six images of changed code after {time.monotonic() - began:.0f} s")

    def roll(service: str) -> Callable[[], None]:
        return lambda: mesh.up("--no-deps", service, env={"HIFI_TAG": "changed"})

    one = sender(mesh)
    await one.send_while(in_thread(*(roll(service) for service in services)))
    all_arrived_once(mesh, one)
    for service in services:
        container = mesh.containers(service)[0]
        page = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9000/healthz').read().decode())"
        assert (
            '"commit":"changed"'
            in run("docker", "exec", container, "/opt/hifi/bin/python", "-c", page).stdout
        )


async def test_everything_stops_within_its_grace_and_nothing_is_killed(
    mesh: ComposeMesh, sender: MakeSender
) -> None:
    one = sender(mesh)
    await one.send(3)
    all_arrived_once(mesh, one)
    mesh.compose("stop")
    for service in ("ingest", "normalize", "enrich", "egest", "retrier", "observe", "kafka"):
        for container in mesh.compose("ps", "--all", "--quiet", service).stdout.split():
            assert inspect(container, "{{.State.ExitCode}} {{.State.OOMKilled}}") in {
                "0 false",
                "143 false",
            }, service
