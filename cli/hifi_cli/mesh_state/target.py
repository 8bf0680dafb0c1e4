"""Find the mesh that a command works on: the one that runs on a data folder, or one given by options."""

from dataclasses import dataclass
from pathlib import Path

from hifi.control.settings import ControlSettings
from hifi.kafka.security import use
from hifi.kafka.settings import StreamSettings
from hifi.kafka.topics import ControlTopics, Topics
from hifi.runtime.errors import Misconfigured
from hifi.runtime.settings import load
from hifi_cli.mesh_state.control_plane import ControlPlane
from hifi_infra.kafka.credentials import own_cluster_security
from hifi_infra.mesh import running
from hifi_infra.mesh.running import RunningMesh


@dataclass(frozen=True, slots=True)
class Target:
    """A mesh. `running` is None if it was given by --kafka and not by a data folder."""

    kafka: str
    topics: Topics
    running: RunningMesh | None
    control: ControlPlane | None = None
    """The mesh's control plane; None: it has none."""

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
        return Target(kafka, stream_topics(stream or "hifi"), None, control)
    mesh = running.find(data)
    if mesh is None or not mesh.kafka:
        raise Misconfigured(
            f"no mesh is running on {data}: start one with `hifi up`, give its folder with --data, "
            "or give a Kafka cluster with --kafka"
        )
    if mesh.brokers is not None:
        use(mesh.kafka, own_cluster_security(data, secure=mesh.secure))
    control = ControlPlane(mesh.kafka, ControlTopics(mesh.control)) if mesh.control else None
    return Target(mesh.kafka, stream_topics(stream or mesh.stream), mesh, control)


def kafka_targets(data: Path, kafka: str | None, stream: str | None) -> dict[str, Target]:
    """The mesh to use, under an empty name, or both colours by name.

    Raises:
        Misconfigured: as `kafka_target`; a colour is asleep.
    """
    whole = None if kafka else running.find(data)
    if whole is None or not whole.colours:
        return {"": kafka_target(data, kafka, stream)}
    for name, folder in whole.colours.items():
        if running.find(folder) is None:
            raise Misconfigured(
                f"{name} does not run, and both colours need the same pipes: wake it first with "
                f"`hifi colour wake {name}`, or name one colour with --data {data}/COLOUR"
            )
    return {name: kafka_target(folder, None, stream) for name, folder in whole.colours.items()}


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


def observe_url(data: Path, url: str | None) -> str:
    """Return the address of observe; with two colours, that of one that runs.

    Raises:
        Misconfigured: no address is given and no mesh with observe runs on the folder.
    """
    if url:
        return url.rstrip("/")
    mesh = _mesh(data, "or give the address of observe with --url")
    colours = [
        colour_mesh for folder in mesh.colours.values() if (colour_mesh := running.find(folder)) is not None
    ]
    console = next(
        (candidate.console for candidate in (mesh, *colours) if candidate.console is not None), None
    )
    if console is None:
        raise Misconfigured(f"the mesh on {data} runs without observe; start it without `--scale observe=0`")
    return console


def has_colours(data: Path, url: str | None) -> bool:
    """Whether the folder is that of two colours; False if an address is given."""
    mesh = None if url else running.find(data)
    return mesh is not None and bool(mesh.colours)


def _mesh(data: Path, otherwise: str) -> RunningMesh:
    mesh = running.find(data)
    if mesh is None:
        raise Misconfigured(
            f"no mesh is running on {data}: start one with `hifi up`, give its folder with --data, {otherwise}"
        )
    return mesh
