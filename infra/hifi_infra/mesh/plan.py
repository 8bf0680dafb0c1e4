"""What a mesh on one machine is to be, and what each of its processes is told. Pure."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from hifi.errors import Misconfigured
from hifi.settings import StreamSettings, load
from hifi.topics import Topics

FLOW: Final = ("ingest", "normalize", "enrich", "egest", "retrier", "observe")
"""The services, in the order in which an event meets them; observe, which none of the others needs, sees their end."""
START_ORDER: Final = ("enrich", "ingest", "normalize", "egest", "retrier", "observe")
"""Spark takes longest to start, so it starts first; every service waits for Kafka by itself."""
MOST_INSTANCES: Final = 64

Trigger: TypeAlias = Literal["micro-batch", "real-time"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a mesh on one machine is to be.

    Attributes:
        data: folder of everything that the mesh keeps. One mesh at a time uses it.
        stream: name of the stream: prefix of its topics and groups.
        kafka: bootstrap servers of an existing cluster; None: a cluster of the mesh's own, kept in `data`.
        brokers: of the own cluster; None: as many as the folder has already, else one.
        partitions: of each event topic; None: as many as the stream has already, else 4.
        port: where ingest takes events.
        trigger: of enrich.
        console_port: where the first instance of observe serves its console and API.
        scale: service to number of instances; where nothing is said one, and none of observe.
        python_path: folders in which the pipes' own Python functions are looked for.
        env: further variables for every service, such as the secrets that pipes name.
        own_env: name of an instance, as in `normalize-2`, to variables of its own, above all others.
    """

    data: Path
    stream: str = "hifi"
    kafka: str | None = None
    brokers: int | None = None
    partitions: int | None = None
    port: int = 8080
    console_port: int = 8090
    trigger: Trigger = "micro-batch"
    scale: Mapping[str, int] = field(default_factory=dict)
    python_path: Sequence[Path] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    own_env: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def instances(self, service: str) -> int:
        """How many instances of a service are wanted."""
        return self.scale.get(service, 0 if service == "observe" else 1)

    @property
    def topics(self) -> Topics:
        """The stream's topics; the retry tiers are told to every service by the variable HIFI_TIERS."""
        return Topics(self.stream, load(StreamSettings).tiers)

    @property
    def url(self) -> str:
        """Where events are sent to."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def console(self) -> str | None:
        """Where the console and observe's API are; None without observe."""
        return f"http://127.0.0.1:{self.console_port}" if self.instances("observe") else None


@dataclass(frozen=True, slots=True)
class Place:
    """Where one instance is: number from 1, and the port of its health pages."""

    service: str
    number: int
    port: int

    @property
    def name(self) -> str:
        """What people, logs and metrics call it."""
        return f"{self.service}-{self.number}"


def read_scale(texts: Sequence[str]) -> dict[str, int]:
    """`["normalize=3", "egest=2"]` as numbers.

    Raises:
        Misconfigured: no such service, or not a number of instances.
    """
    scale: dict[str, int] = {}
    for text in texts:
        service, _, count = text.partition("=")
        if service not in FLOW:
            raise Misconfigured(
                f"--scale {text}: no service is called {service!r}; there are {', '.join(FLOW)}"
            )
        if not count.isdecimal() or int(count) > MOST_INSTANCES:
            raise Misconfigured(f"--scale {text}: write for example {service}=2, at most {MOST_INSTANCES}")
        scale[service] = int(count)
    return scale


def command(service: str) -> list[str]:
    """The program of a service, run by this Python; `-P` keeps the current folder out of it."""
    return [sys.executable, "-P", "-m", f"hifi_{service}"]


def environment(plan: Plan, place: Place, bootstrap: str, java_home: Path | None) -> dict[str, str]:
    """All variables of one instance: this process's own, the plan's, and above them what the mesh decides."""
    variables = dict(os.environ) | dict(plan.env)
    paths = [*map(str, plan.python_path), variables.get("PYTHONPATH", "")]
    # Instances of several machines on one cluster must differ in name.
    prefix = f"{socket.gethostname()}-" if plan.kafka else ""
    variables |= {
        "HIFI_KAFKA": bootstrap,
        "HIFI_STREAM": plan.stream,
        "HIFI_HOST": "127.0.0.1",
        "HIFI_PORT": str(place.port),
        "HIFI_INSTANCE": prefix + place.name,
        "HIFI_LOG_FORMAT": "json",
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }
    if place.service == "ingest":
        variables["HIFI_INGEST_PORT"] = str(plan.port)
    if place.service == "observe":
        variables["HIFI_OBSERVE_PORT"] = str(plan.console_port if place.number == 1 else 0)
    if place.service == "enrich":
        variables["HIFI_ENRICH_TRIGGER"] = plan.trigger
        if java_home is not None:
            variables["JAVA_HOME"] = str(java_home)
    return variables | dict(plan.own_env.get(place.name, {}))
