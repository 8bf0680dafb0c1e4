"""Wrong deployments end with a clear message, or with a service that reports what it waits for and recovers."""

import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.support.containers.stack import ComposeMesh, SteadySender, all_arrived_once, inspect, run, until

MakeMesh = Callable[..., ComposeMesh]
MakeSender = Callable[[ComposeMesh], SteadySender]


@pytest.fixture(scope="module")
def mesh(make_mesh: MakeMesh) -> ComposeMesh:
    """A project of which no service becomes ready."""
    return make_mesh("bad")


def with_variables(mesh: ComposeMesh, **env: str) -> ComposeMesh:
    """The same project with other variables."""
    return replace(mesh, env=mesh.env | env)


def test_a_missing_secret_is_named_and_nothing_runs(mesh: ComposeMesh, tmp_path: Path) -> None:
    wrong_mesh = with_variables(mesh, HIFI_SECRETS=str(tmp_path))
    completed = wrong_mesh.compose("up", "--detach", "--no-deps", "ingest", check=False)
    assert completed.returncode != 0
    assert "write_key" in completed.stderr
    assert "does not exist" in completed.stderr or "not found" in completed.stderr


def test_a_wrong_folder_of_pipes_is_named(mesh: ComposeMesh, tmp_path: Path) -> None:
    wrong_mesh = with_variables(mesh, HIFI_PIPES=str(tmp_path / "nowhere"))
    completed = wrong_mesh.compose("up", "--detach", "--no-deps", "normalize", check=False)
    assert completed.returncode != 0
    assert "nowhere" in completed.stderr


def test_a_wrong_pipe_ends_the_setup_with_file_and_line(mesh: ComposeMesh, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("pipe: broken\nsource: {keys: []}\n")
    tmp_path.chmod(0o755)
    completed = with_variables(mesh, HIFI_PIPES=str(tmp_path)).compose(
        "run", "--rm", "--no-deps", "setup", check=False
    )
    assert completed.returncode == 2
    assert "/pipes/broken.yaml:2:" in completed.stderr + completed.stdout


def test_a_port_in_use_is_told(mesh: ComposeMesh) -> None:
    with socket.create_server(("127.0.0.1", int(mesh.env["HIFI_PUBLIC_PORT"]))):
        done = mesh.compose("up", "--detach", "--no-deps", "ingest", check=False)
    assert done.returncode != 0
    assert mesh.env["HIFI_PUBLIC_PORT"] in done.stderr
    assert "in use" in done.stderr or "already allocated" in done.stderr
    mesh.compose("up", "--detach", "--no-deps", "ingest")


@pytest.mark.more  # without containers: tests of each service's start
def test_services_wait_for_an_unreachable_kafka_say_so_and_recover(make_mesh: MakeMesh) -> None:
    mesh = make_mesh("kafka")

    def says_kafka(service: str) -> bool:
        return "afka" in str(mesh.waiting(service))

    mesh.compose("up", "--detach", "--no-deps", "normalize", "egest")
    for service in ("normalize", "egest"):
        until(partial(says_kafka, service), f"{service} says that it waits for Kafka")
        assert mesh.health(service) != ["healthy"]
    mesh.up("kafka", "setup", "normalize", "egest")
    assert mesh.waiting("normalize") == mesh.waiting("egest") == {}


def test_the_setup_gives_up_on_an_absent_kafka_with_a_sentence(mesh: ComposeMesh) -> None:
    completed = mesh.compose("run", "--rm", "--no-deps", "-e", "HIFI_WAIT_S=3", "setup", check=False)
    assert completed.returncode == 1
    assert "waited 3 s for Kafka at kafka:9092" in completed.stderr + completed.stdout


FULL = """
volumes:
  kafka: {driver_opts: {type: tmpfs, device: tmpfs, o: "size=64m,uid=10001,gid=10001"}}
"""


def test_a_full_volume_is_told(make_mesh: MakeMesh, tmp_path: Path) -> None:
    (tmp_path / "full.yaml").write_text(FULL)
    mesh = make_mesh("full", str(tmp_path / "full.yaml"))
    completed = mesh.compose("run", "--rm", "kafka", check=False)
    assert completed.returncode == 2
    assert "64 MiB left, at least 256 are needed" in completed.stderr + completed.stdout


@pytest.fixture
def two(make_mesh: MakeMesh) -> tuple[ComposeMesh, ComposeMesh]:
    return make_mesh("one"), make_mesh("two")


@pytest.mark.more
def test_two_meshes_on_one_host_share_no_network_and_no_volume(two: tuple[ComposeMesh, ComposeMesh]) -> None:
    for mesh in two:
        mesh.up("kafka", "setup")
    names = {
        inspect(mesh.containers("kafka")[0], "{{range .NetworkSettings.Networks}}{{.NetworkID}}{{end}}")
        for mesh in two
    }
    volumes = {inspect(mesh.containers("kafka")[0], "{{range .Mounts}}{{.Name}}{{end}}") for mesh in two}
    assert len(names) == len(volumes) == 2
    two[0].down()
    assert two[1].health("kafka") == ["healthy"]


@pytest.mark.more  # without containers: tests/services/rollout/test_restore.py
async def test_a_backup_restores_what_was_not_delivered(
    make_mesh: MakeMesh, sender: MakeSender, tmp_path: Path
) -> None:
    mesh = make_mesh("backup")
    mesh.up("kafka", "setup", "ingest")
    event_sender = sender(mesh)
    await event_sender.send(5)
    container, archive = mesh.containers("kafka")[0], tmp_path / "kafka.tar"
    mesh.compose("stop")
    run("sh", "-c", f"docker cp {container}:/var/lib/kafka/. - >{archive}")
    mesh.down()
    mesh.compose("create", "kafka")
    container_id = mesh.compose("ps", "--all", "--quiet", "kafka").stdout.strip()
    run("sh", "-c", f"docker cp - {container_id}:/var/lib/kafka <{archive}")
    mesh.up("kafka", "setup", "destination", "normalize", "enrich", "egest")
    all_arrived_once(mesh, event_sender)
