"""Find the mesh that a command works on: the one that runs on a data folder, or one given by options."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hifi.kafka.security import use
from hifi.kafka.settings import ControlSettings, StreamSettings
from hifi.kafka.topics import ControlTopics, PrincipalTopics, Topics, principal_topics
from hifi.runtime.errors import Misconfigured
from hifi.runtime.settings import load
from hifi_cli.mesh_state.audited_command import audited_command
from hifi_cli.mesh_state.control_plane import ControlPlane
from hifi_cli.mesh_state.observe_api import ObserveApi, environment_token, read_token
from hifi_infra.kafka.credentials import own_cluster_security
from hifi_infra.mesh import running
from hifi_infra.mesh.running import RunningMesh


@dataclass(frozen=True, slots=True)
class AuditTopics:
    """The topics of principals and audit, and the bootstrap servers of their Kafka."""

    kafka: str
    topics: PrincipalTopics

    def audited(self, action: str, before: Mapping[str, Any]) -> AbstractAsyncContextManager[dict[str, Any]]:
        """Audit changes, as `audited_command` does."""
        return audited_command(self.kafka, self.topics, action, before)


@dataclass(frozen=True, slots=True)
class Target:
    """A mesh. `running` is None if it was given by --kafka and not by a data folder."""

    kafka: str
    topics: Topics
    running: RunningMesh | None
    data: Path | None = None
    """The data folder; None: it was given by --kafka."""
    control: ControlPlane | None = None
    """The mesh's control plane; None: it has none."""
    audit: AuditTopics | None = None
    """Topics of its principals and its audit; None: in its own Kafka, under the names that the stream gives."""

    @property
    def principals(self) -> AuditTopics:
        """The topics of its principals and its audit."""
        return self.audit or AuditTopics(self.kafka, principal_topics(self.topics.stream))

    @property
    def observe(self) -> ObserveApi | None:
        """The API of the observe of the mesh in a data folder; None: it has none."""
        if self.running is None or self.data is None or self.running.console is None:
            return None
        token = environment_token() or mesh_token(self.data, self.running)
        return ObserveApi(self.running.console, token)

    def require_control(self) -> ControlPlane:
        """The mesh's control plane.

        Raises:
            Misconfigured: it has none.
        """
        if self.control is None:
            raise Misconfigured(
                "the mesh has no control plane: start it with `hifi up --control`, or with --kafka set HIFI_CONTROL"
            )
        return self.control


def kafka_target(data: Path, kafka: str | None, stream: str | None) -> Target:
    """Return the Kafka cluster and the stream to use.

    Raises:
        Misconfigured: no cluster is given and no mesh runs on the folder.
    """
    if kafka:
        settings = load(ControlSettings)
        control = (
            ControlPlane(settings.control_kafka or kafka, settings.control_topics)
            if settings.control
            else None
        )
        kafka_of_control = settings.control_kafka or kafka
        topics = settings.control_topics if settings.control else principal_topics(stream or "hifi")
        return Target(
            kafka,
            stream_topics(stream or "hifi"),
            None,
            control=control,
            audit=AuditTopics(kafka_of_control, topics),
        )
    mesh = running.find(data)
    if mesh is None or not mesh.kafka:
        raise Misconfigured(
            f"no mesh is running on {data}: start one with `hifi up`, give its folder with --data, "
            "or give a Kafka cluster with --kafka"
        )
    if mesh.brokers is not None:
        use(mesh.kafka, own_cluster_security(data, secure=mesh.secure))
    control = ControlPlane(mesh.kafka, ControlTopics(mesh.control)) if mesh.control else None
    return Target(mesh.kafka, stream_topics(stream or mesh.stream), mesh, data, control, _shared_audit(data))


def _shared_audit(data: Path) -> AuditTopics | None:
    """Principals and audit that a colour shares with the other one; None: the folder is not that of a colour."""
    folder = data.resolve()
    parent_mesh = running.find(folder.parent)
    if parent_mesh is None or folder not in (colour.resolve() for colour in parent_mesh.colours.values()):
        return None
    return AuditTopics(parent_mesh.control_kafka, principal_topics(parent_mesh.stream))


def audit_topics(data: Path, kafka: str | None, stream: str | None) -> AuditTopics:
    """The topics of principals and audit of a mesh, also of two colours, which share them.

    Raises:
        Misconfigured: no cluster is given and no mesh runs on the folder.
    """
    mesh = None if kafka else running.find(data)
    if mesh is not None and mesh.colours:
        return AuditTopics(mesh.control_kafka, principal_topics(mesh.stream))
    return kafka_target(data, kafka, stream).principals


def kafka_targets(data: Path, kafka: str | None, stream: str | None) -> dict[str, Target]:
    """The mesh to use, under an empty name, or both colours by name.

    Raises:
        Misconfigured: as `kafka_target`; a colour is asleep.
    """
    mesh = None if kafka else running.find(data)
    if mesh is None or not mesh.colours:
        return {"": kafka_target(data, kafka, stream)}
    _require_awake(data, mesh, "both colours need the same pipes and write keys")
    return {name: kafka_target(folder, None, stream) for name, folder in mesh.colours.items()}


def _require_awake(data: Path, mesh: RunningMesh, reason: str) -> None:
    """Refuse a command for both colours, with the reason, while one of them is asleep."""
    for name, folder in mesh.colours.items():
        if running.find(folder) is None:
            raise Misconfigured(
                f"{name} does not run, and {reason}: wake it first with `hifi colour wake {name}`, or name one colour "
                f"with --data {data}/COLOUR"
            )


def stream_topics(stream: str) -> Topics:
    """Return the topics of a stream, with the retry tiers set by HIFI_TIERS."""
    return Topics(stream, load(StreamSettings).tiers)


def ingest_url(data: Path, url: str | None) -> str:
    """Return the address of ingest.

    Raises:
        Misconfigured: no address is given and no mesh runs on the folder.
    """
    if url:
        return url.rstrip("/")
    return _mesh(data, "or give the address of ingest with --url").url


def observe_api(data: Path, url: str | None) -> ObserveApi:
    """Return the API of observe, called with the token in HIFI_TOKEN or in the data folder; with two colours, one's.

    Raises:
        Misconfigured: no address is given and no mesh with observe runs on the folder.
    """
    token = environment_token()
    if url:
        mesh, address = running.find(data), url.rstrip("/")
        is_of_mesh = mesh is not None and address == mesh.console
        return ObserveApi(address, token or (mesh_token(data, mesh) if mesh and is_of_mesh else ""))
    mesh = _mesh(data, "or give the address of observe with --url")
    colours = [
        colour_mesh for folder in mesh.colours.values() if (colour_mesh := running.find(folder)) is not None
    ]
    console = next(
        (candidate.console for candidate in (mesh, *colours) if candidate.console is not None), None
    )
    if console is None:
        raise Misconfigured(f"the mesh on {data} runs without observe; start it without `--scale observe=0`")
    return ObserveApi(console, token or mesh_token(data, mesh))


def observe_apis(data: Path, url: str | None) -> list[ObserveApi]:
    """Return the API of observe, or that of each colour of the mesh.

    Raises:
        Misconfigured: as `observe_api`; a colour is asleep, or runs without observe.
    """
    mesh = None if url else running.find(data)
    if mesh is None or not mesh.colours:
        return [observe_api(data, url)]
    _require_awake(data, mesh, "the figures are those of both colours")
    return [observe_api(folder, None) for folder in mesh.colours.values()]


def view_urls(data: Path, urls: Sequence[str]) -> list[str]:
    """Return the addresses of view: those that are given, else that of the mesh or of each of its colours.

    Raises:
        Misconfigured: no address is given and no mesh with views runs on the folder; a colour is asleep.
    """
    if urls:
        return [url.rstrip("/") for url in urls]
    mesh = _mesh(data, "or give the address of view with --url")
    meshes = {data: mesh}
    if mesh.colours:
        _require_awake(data, mesh, "rows that only it has would be missing")
        meshes = {folder: _mesh(folder, "or wake it") for folder in mesh.colours.values()}
    viewless_folders = [str(folder) for folder, folder_mesh in meshes.items() if folder_mesh.view is None]
    if viewless_folders:
        raise Misconfigured(
            f"the mesh on {' and '.join(viewless_folders)} serves no views: add a file that begins with `view: NAME` "
            "to its folder of pipes, and start it again"
        )
    return [folder_mesh.view for folder_mesh in meshes.values() if folder_mesh.view is not None]


def mesh_token(data: Path, mesh: RunningMesh) -> str:
    """The token of a mesh's first principal; empty: there is none. That of colours is in their parent folder."""
    name = f"{principal_topics(mesh.stream).control}.token"
    return read_token(data / name) or read_token(data.resolve().parent / name)


def has_colours(data: Path, url: str | None) -> bool:
    """Whether the folder is that of two colours; False if an address is given."""
    mesh = None if url else running.find(data)
    return mesh is not None and bool(mesh.colours)


def _mesh(data: Path, remedy: str) -> RunningMesh:
    mesh = running.find(data)
    if mesh is None:
        raise Misconfigured(
            f"no mesh is running on {data}: start one with `hifi up`, give its folder with --data, {remedy}"
        )
    return mesh
