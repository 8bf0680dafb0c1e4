"""Which mesh a command is about: the one that runs on a data folder, or one that options name."""

from dataclasses import dataclass
from pathlib import Path

from hifi.errors import Misconfigured
from hifi.settings import StreamSettings, load
from hifi.topics import Topics
from hifi_infra.mesh import running
from hifi_infra.mesh.running import RunningMesh


@dataclass(frozen=True, slots=True)
class Target:
    """A mesh. `running` None: it is not one of this machine's data folder."""

    kafka: str
    topics: Topics
    running: RunningMesh | None


def kafka_target(data: Path, kafka: str | None, stream: str | None) -> Target:
    """The Kafka and the stream to talk to.

    Raises:
        Misconfigured: none is named and no mesh runs on the folder.
    """
    if kafka:
        return Target(kafka, _topics(stream or "hifi"), None)
    mesh = running.find(data)
    if mesh is None or not mesh.kafka:
        raise Misconfigured(
            f"no mesh runs on {data}: start one with `hifi up`, name its folder with --data, "
            "or name a Kafka cluster with --kafka"
        )
    return Target(mesh.kafka, _topics(stream or mesh.stream), mesh)


def _topics(stream: str) -> Topics:
    """Of a stream, with the retry tiers that HIFI_TIERS tells every service."""
    return Topics(stream, load(StreamSettings).tiers)


def ingest_url(data: Path, url: str | None) -> str:
    """Where to send events to.

    Raises:
        Misconfigured: none is named and no mesh runs on the folder.
    """
    if url:
        return url.rstrip("/")
    return _mesh(data, "or say where ingest is with --url").url


def observe_url(data: Path, url: str | None) -> str:
    """Where observe's API is.

    Raises:
        Misconfigured: none is named and no mesh with observe runs on the folder.
    """
    if url:
        return url.rstrip("/")
    console = _mesh(data, "or say where observe is with --url").console
    if console is None:
        raise Misconfigured(f"the mesh on {data} runs without observe: start it without `--scale observe=0`")
    return console


def _mesh(data: Path, otherwise: str) -> RunningMesh:
    mesh = running.find(data)
    if mesh is None:
        raise Misconfigured(
            f"no mesh runs on {data}: start one with `hifi up`, name its folder with --data, {otherwise}"
        )
    return mesh
