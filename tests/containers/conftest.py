"""Tests of the images and of the mesh in containers: `make test-containers`. `make test` leaves them out."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.containers.stack import ROOT, ComposeMesh, SteadySender, run

from hifi_infra.ports import free_port

collect_ignore_glob = [] if os.environ.get("HIFI_TEST_CONTAINERS") else ["test_*.py"]
MakeMesh = Callable[..., ComposeMesh]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).parent == Path(__file__).parent and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session", autouse=True)
def engine() -> None:
    """A Docker engine. Without one the tests fail in CI and are skipped elsewhere."""
    engine = subprocess.run(["infra/docker/engine.sh"], cwd=ROOT, capture_output=True, text=True, check=False)
    if engine.returncode != 0:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no Docker engine: {engine.stderr.strip()}")
    os.environ["DOCKER_HOST"] = engine.stdout.strip()


def engine_access() -> dict[str, str]:
    """The engine's socket and the group that may use it."""
    socket = os.environ["DOCKER_HOST"].removeprefix("unix://")
    return {"HIFI_DOCKER_SOCKET": socket, "HIFI_DOCKER_GROUP": str(Path(socket).stat().st_gid)}


@pytest.fixture(scope="session")
def tag(engine: None) -> str:
    """Tag of the images. `make test-containers` builds them before the tests: that may take as long as it takes."""
    tag_option = os.environ.get("HIFI_TEST_TAG", "")
    assert tag_option, (
        "HIFI_TEST_TAG is not set: use `make test-containers`, or name the tag of images that exist"
    )
    return tag_option


@pytest.fixture(scope="session")
def secrets(tag: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secrets")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    for _ in range(2):  # the second time everything is kept
        run("infra/docker/secrets.sh", str(folder), env={"HIFI_TAG": tag})
    return folder


@pytest.fixture(scope="module")
def make_mesh(tag: str, secrets: Path, request: pytest.FixtureRequest) -> Iterator[MakeMesh]:
    """Creates compose projects, not started, and removes them at the end; after a failure it keeps their logs."""
    meshes: list[ComposeMesh] = []

    def make(
        name: str, *files: str, control: str = "", profiles: tuple[str, ...] = (), **variables: str
    ) -> ComposeMesh:
        env = {
            "HIFI_TAG": tag,
            "HIFI_SECRETS": str(secrets),
            "HIFI_PUBLIC_PORT": str(free_port()),
            "HIFI_CONSOLE_PORT": str(free_port()),
            "HIFI_MANAGE_PORT": str(free_port()),
            **({"HIFI_CONTROL": control, **engine_access()} if control else {}),
            **variables,
        }
        mesh = ComposeMesh(f"hifi-test-{name}", env, ("infra/compose.yaml", *files), profiles)
        mesh.down()  # from an earlier run
        meshes.append(mesh)
        return mesh

    failed_before = request.session.testsfailed
    yield make
    for mesh in meshes:
        if request.session.testsfailed > failed_before:
            logs = Path("build", f"{mesh.project}.log")
            logs.parent.mkdir(exist_ok=True)
            logs.write_text(mesh.compose("logs", "--timestamps", "--no-color", check=False).stdout)
        mesh.down()


@pytest.fixture
def sender(secrets: Path, request: pytest.FixtureRequest) -> Callable[[ComposeMesh], SteadySender]:
    """Creates a sender to a mesh with event ids of its own."""

    def make(mesh: ComposeMesh) -> SteadySender:
        key = (secrets / "write_key").read_text().strip()
        return SteadySender(f"http://127.0.0.1:{mesh.env['HIFI_PUBLIC_PORT']}", key, name=request.node.name)

    return make
