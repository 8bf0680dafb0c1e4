"""Supervision of a mesh, with stand-ins for the services and a real Kafka."""

import asyncio
import json
import os
import signal
import socket
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from hifi.control.declaration import Declaration
from hifi.control.declaration_log import DeclarationLog
from hifi.kafka.topics import ControlTopics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import read_registry
from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.health import version
from hifi_infra.mesh import fleet, running
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import FLOW, Plan, read_scale
from hifi_infra.ports import free_port, is_free

STUB = Path(__file__).parents[2] / "support" / "programs" / "stub_service.py"
SESSION_S = 20
"""Session time-out of the stub's group member."""


@pytest.fixture(autouse=True)
def stubs(monkeypatch):
    monkeypatch.setattr(fleet, "command", lambda service: [sys.executable, str(STUB), service])


@pytest.fixture
def plan(tmp_path, kafka):
    def make(**changes):
        arguments = {
            "data": tmp_path / "data",
            "kafka": kafka,
            "stream": f"s{uuid.uuid4().hex[:8]}",
            "port": free_port(),
        }
        return Plan(**(arguments | {"partitions": 2} | changes))

    return make


async def test_starts_everything_and_says_where_it_is(plan, kafka):
    mesh_plan = plan(scale={"normalize": 2})
    mesh = Mesh(mesh_plan)
    await mesh.start()
    await mesh.wait_ready(20)
    running_mesh = running.find(mesh_plan.data)
    assert running_mesh is not None
    assert [(instance.service, instance.number) for instance in running_mesh.instances] == [
        ("ingest", 1), ("normalize", 1), ("normalize", 2), ("enrich", 1), ("egest", 1), ("retrier", 1)
    ]  # fmt: skip
    assert all(psutil.pid_exists(instance.pid) for instance in running_mesh.instances)
    assert (await read_registry(kafka, mesh.topics)).partitions == 2
    await mesh.stop()
    assert running.find(mesh_plan.data) is None
    assert not any(psutil.pid_exists(instance.pid) for instance in running_mesh.instances)
    assert is_free(mesh_plan.port)


async def test_a_start_beside_a_control_plane_does_not_undo_what_that_decided(plan, kafka):
    def pipe(name, path="old"):
        destination = {"name": "d", "url": f"http://127.0.0.1:9/{path}"}
        source = {"keys": [{"env": f"KEY_{name}"}]}
        return Pipe.model_validate({"pipe": name, "source": source, "destinations": [destination]})

    async def started(*pipes):
        mesh = Mesh(mesh_plan)
        await mesh.start(pipes)
        await mesh.stop()
        registry = await read_registry(kafka, mesh.topics)
        in_force = {name: revision.pipe for name, revision in registry.pipes.items()}
        return in_force, [entry.text for entry in mesh.journal.entries if "hifi apply" in entry.text]

    mesh_plan = plan(control=True)
    assert await started(pipe("kept"), pipe("changed")) == (
        {"kept": pipe("kept"), "changed": pipe("changed")},
        [],
    )
    log = DeclarationLog(kafka, ControlTopics(f"{mesh_plan.stream}-control").declared, "test")
    await log.start()
    await log.append([Declaration("deleted", None, "me", 1)])
    await log.stop()
    pipes = pipe("kept"), pipe("changed", "new"), pipe("deleted"), pipe("fresh")
    in_force, advice = await started(*pipes)
    assert in_force == {name: pipe(name) for name in ("kept", "changed", "fresh")}
    assert advice == [
        "left as the control plane has them: changed, deleted; `hifi apply DIR` declares them as the folder has them"
    ]


def test_what_an_earlier_mesh_said_is_not_taken_for_the_one_that_starts(tmp_path):
    earlier = running.RunningMesh(
        pid=os.getpid(), created=1.0, stream="s", kafka="k", brokers=1, url="u", trigger="micro-batch"
    )
    with running.lock(tmp_path):
        running.write(tmp_path, earlier)
        assert running.is_locked(tmp_path)
        assert running.find(tmp_path) is None
        alive = earlier.model_copy(update={"created": running.created(os.getpid())})
        running.write(tmp_path, alive)
        assert running.find(tmp_path) == alive.model_copy(update={"release": version("infra")})
    assert not running.is_locked(tmp_path)
    assert running.find(tmp_path) is None


async def test_a_service_that_dies_comes_back_with_its_port_known(plan):
    mesh = Mesh(plan())
    async with mesh:
        await mesh.wait_ready(20)
        victim = mesh.instances["egest"][0]
        pid_before = victim.process.pid
        os.kill(pid_before, signal.SIGKILL)
        tokens = set()
        async with asyncio.timeout(10):
            while not (victim.restarts == 1 and victim.ready):
                tokens.add(len(mesh.describe().instances))
                await asyncio.sleep(0.05)
        assert tokens == {5}, "who asks in between learns of the dead one too"
        await asyncio.sleep(0.6)
        running_mesh = running.find(mesh.plan.data)
        assert running_mesh is not None
        assert (
            {instance.pid for instance in running_mesh.instances if instance.service == "egest"}
            == {victim.process.pid}
            != {pid_before}
        )
        assert any("egest-1 ended with SIGKILL" in entry.text for entry in mesh.journal.entries)


async def test_a_killed_group_member_has_its_partitions_back_before_its_session_expires(plan, monkeypatch):
    monkeypatch.setenv("STUB_NORMALIZE", "group-member")
    mesh = Mesh(plan(kafka=None))
    async with mesh:
        await mesh.wait_ready(40)
        victim = mesh.instances["normalize"][0]
        os.kill(victim.process.pid, signal.SIGKILL)
        async with asyncio.timeout(SESSION_S / 2):
            while not (victim.restarts == 1 and victim.ready):
                await asyncio.sleep(0.05)


async def test_stops_in_the_order_of_the_flow(plan):
    mesh = Mesh(plan(scale={"observe": 1, "collect": 1}, console_port=free_port()))
    await mesh.start()
    await mesh.wait_ready(20)
    await mesh.stop()
    stop_times = []
    for service in (service_name for service_name in FLOW if mesh.plan.instances(service_name)):
        lines = (mesh.plan.data / "logs" / f"{service}-1.log").read_text().splitlines()
        stop_times.append(json.loads(lines[-1])["at"])
    assert stop_times == sorted(stop_times)


async def test_two_meshes_on_one_folder_are_refused(plan):
    mesh_plan = plan()
    async with Mesh(mesh_plan):
        with pytest.raises(Misconfigured, match=r"a mesh already runs on .*hifi down --data"):
            await Mesh(plan(data=mesh_plan.data)).start()


async def test_a_taken_port_is_named(plan):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(Misconfigured, match=f"port {port} of 127.0.0.1 is in use.*--port"):
            await Mesh(plan(port=port)).start()
        with pytest.raises(Misconfigured, match=f"port {port} of 127.0.0.1 is in use.*--console-port"):
            await Mesh(plan(console_port=port, scale={"observe": 1})).start()


async def test_a_service_that_will_not_run_ends_the_wait_with_its_own_words(plan, monkeypatch):
    monkeypatch.setenv("STUB_EGEST", "misconfigured")
    mesh = Mesh(plan())
    await mesh.start()
    try:
        with pytest.raises(
            Misconfigured, match="egest-1 does not start: hifi-egest: HIFI_THING: must be a number"
        ):
            await mesh.wait_ready(20)
    finally:
        await mesh.kill()


async def test_says_who_is_not_ready_and_why(plan, monkeypatch):
    monkeypatch.setenv("STUB_NORMALIZE", "never-ready")
    mesh = Mesh(plan())
    async with mesh:
        with pytest.raises(Retryable, match=r"(?s)not ready within 3 s.*normalize-1: the caches are cold"):
            await mesh.wait_ready(3)


async def test_scales_while_it_runs(plan):
    mesh = Mesh(plan())
    async with mesh:
        await mesh.wait_ready(20)
        await mesh.scale("egest", 3)
        await mesh.wait_ready(20)
        assert [instance.name for instance in mesh.instances["egest"]] == ["egest-1", "egest-2", "egest-3"]
        stopped_pid = mesh.instances["egest"][2].process.pid
        await mesh.scale("egest", 1)
        assert not psutil.pid_exists(stopped_pid)
        running_mesh = running.find(mesh.plan.data)
        assert running_mesh is not None
        assert sum(instance.service == "egest" for instance in running_mesh.instances) == 1


async def test_another_partition_count_is_refused_and_none_means_the_same(plan):
    mesh_plan = plan(partitions=3)
    async with Mesh(mesh_plan) as mesh:
        assert mesh.partitions == 3
    async with Mesh(plan(stream=mesh_plan.stream, partitions=None)) as restarted_mesh:
        assert restarted_mesh.partitions == 3
    with pytest.raises(Misconfigured, match="has 3 partitions"):
        await Mesh(plan(stream=mesh_plan.stream, partitions=5)).start()


async def test_a_cancelled_start_leaves_nothing(plan):
    mesh_plan = plan()
    for delay_s in (0.0, 0.05, 0.3, 0.8):
        mesh = Mesh(mesh_plan)
        task = asyncio.create_task(mesh.start())
        await asyncio.sleep(delay_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and task.exception() is None:
            await mesh.kill()
        assert not any(instance.process.running for instance in mesh.all())
        assert running.find(mesh_plan.data) is None
        assert is_free(mesh_plan.port)


def test_reads_scales():
    assert read_scale(["normalize=3", "egest=0"]) == {"normalize": 3, "egest": 0}
    for text in ("normalise=3", "egest", "egest=x", "egest=-1", "egest=65"):
        with pytest.raises(Misconfigured, match="--scale"):
            read_scale([text])


async def test_instances_with_different_releases_keep_their_names_and_are_not_scaled_in(plan, tmp_path):
    release = str(tmp_path / "next")
    (tmp_path / "next" / "libs").mkdir(parents=True)
    mesh = Mesh(plan(scale={"egest": 2, "enrich": 0}))
    await mesh.start()
    try:
        await mesh.set_release("egest-3", release, "canary")
        with pytest.raises(Retryable, match="a deployment of egest runs"):
            await mesh.scale("egest", 1)
        for name in ("egest-1", "egest-2", "egest-2"):
            await mesh.set_release(name, release, "batch")
        await mesh.remove("egest-3", "the canary ends")
        await mesh.remove("egest-3", "asked again")
        await mesh.set_default_release("egest", release)
        await mesh.scale("egest", 3)
        assert [(instance.name, instance.spec.release) for instance in mesh.instances["egest"]] == [
            (f"egest-{number}", release) for number in (1, 2, 3)
        ]
        assert {
            instance.release for instance in mesh.describe().instances if instance.service == "egest"
        } == {release}
        with pytest.raises(Misconfigured, match="is no folder"):
            await mesh.set_release("egest-1", str(tmp_path / "absent"), "")
        with pytest.raises(Misconfigured, match="name an instance of"):
            await mesh.set_release("egest", release, "")
    finally:
        await mesh.stop()
