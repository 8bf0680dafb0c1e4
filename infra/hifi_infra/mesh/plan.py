"""The plan of a mesh on one machine, and the command and environment of each of its processes."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from hifi.control.releases.desired_release import INSTALLED
from hifi.kafka.security import KafkaSecurity
from hifi.kafka.security.settings import PREFIX as SECURITY_PREFIX
from hifi.kafka.settings import StreamSettings
from hifi.kafka.topics import ControlTopics, PrincipalTopics, Topics, principal_topics
from hifi.runtime.errors import Misconfigured
from hifi.runtime.settings import load

FLOW: Final = (
    "ingest",
    "collect",
    "normalize",
    "enrich",
    "egest",
    "lake",
    "state",
    "retrier",
    "view",
    "observe",
)
"""The services in the order of an event's path; observe is last, since no other needs it and it sees them end."""
CONTROL: Final = ("rollout", "deploy", "scale", "manage")
"""The services of the control plane, which end before those that they change."""
START_ORDER: Final = (
    "enrich",
    "ingest",
    "collect",
    "normalize",
    "egest",
    "lake",
    "state",
    "retrier",
    "view",
    "observe",
    *CONTROL,
)
"""Enrich first, since Spark takes longest to start; every service waits for Kafka by itself."""
MAX_INSTANCES: Final = 64
CREDENTIALS: Final = "credentials"
"""File with URL, user and password of the REST API of Kafka Connect, in the worker's folder."""

PRINCIPAL_VARIABLE: Final = "HIFI_TOKEN"
"""Variable of the commands of `hifi`, which no service needs."""
FUNCTION_FOLDERS: Final = "HIFI_PIPES_FUNCTION_FOLDERS"
CREDENTIAL_FOLDERS: Final = "HIFI_PIPES_CREDENTIAL_FOLDERS"

Trigger: TypeAlias = Literal["auto", "micro-batch", "real-time"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A mesh on one machine.

    Attributes:
        data: folder for all state of the mesh. One mesh at a time uses it.
        stream: name of the stream, which prefixes its topics and groups.
        kafka: bootstrap servers of an existing cluster; None: the mesh starts its own, kept in `data`.
        brokers: number of brokers of its own cluster; None: as many as the folder has, else 1.
        secure: whether its own cluster uses TLS, passwords and ACLs; None: as the cluster in the folder, else not.
        kafka_version: of its own cluster; empty: that of the folder's last start, else hifi's own.
        partitions: of each event topic; None: as many as the stream has, else 4.
        port: ingest accepts events here.
        trigger: of enrich.
        manage_port: the control plane serves the management API here; 0: on any free port.
        console_port: the first instance of observe serves its console and API here.
        view_port: the first instance of view serves here; 0: on any free port.
        views: folder with the declarations of views; None: there are none.
        scale: service to number of instances; default 1, and 0 of collect, lake, state, view and observe.
        control: whether the control plane runs, too.
        bounds: service to its smallest and largest number of instances, for the control plane to scale it.
        python_path: folders with the pipes' own Python functions.
        env: more variables for every service, such as secrets that pipes refer to.
        own_env: instance name, as in `normalize-2`, to variables that override all others.
    """

    data: Path
    stream: str = "hifi"
    kafka: str | None = None
    brokers: int | None = None
    secure: bool | None = None
    kafka_version: str = ""
    partitions: int | None = None
    port: int = 8080
    console_port: int = 8090
    view_port: int = 0
    views: Path | None = None
    manage_port: int = 0
    trigger: Trigger = "auto"
    scale: Mapping[str, int] = field(default_factory=dict)
    control: bool = False
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    python_path: Sequence[Path] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    own_env: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def instances(self, service: str) -> int:
        """The number of instances of a service."""
        if service in CONTROL:
            return int(self.control)
        return self.scale.get(service, 0 if service in {"collect", "lake", "state", "view", "observe"} else 1)

    @property
    def needs_java(self) -> bool:
        """Whether brokers or Spark run in it."""
        return self.kafka is None or self.instances("enrich") > 0

    @property
    def control_topics(self) -> ControlTopics | None:
        """The topics of the control plane; None without one."""
        return ControlTopics(f"{self.stream}-control") if self.control else None

    @property
    def principal_topics(self) -> PrincipalTopics:
        """The topics of principals and audit."""
        return self.control_topics or principal_topics(self.stream)

    @property
    def topics(self) -> Topics:
        """The stream's topics; the retry tiers come from HIFI_TIERS, which every service reads too."""
        return Topics(self.stream, load(StreamSettings).tiers)

    @property
    def url(self) -> str:
        """URL that accepts events."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def console(self) -> str | None:
        """URL of the console and of observe's API; None without observe."""
        return f"http://127.0.0.1:{self.console_port}" if self.instances("observe") else None

    @property
    def view_console(self) -> str | None:
        """URL of the views and of their console; None without view, and if its port is not chosen."""
        return f"http://127.0.0.1:{self.view_port}" if self.instances("view") and self.view_port else None

    @property
    def token(self) -> Path:
        """File with the token of the first principal of observe and of the management API."""
        return self.data / f"{self.principal_topics.control}.token"

    @property
    def manage(self) -> str | None:
        """URL of the management API; None without a control plane, and if its port is not chosen."""
        return f"http://127.0.0.1:{self.manage_port}" if self.control and self.manage_port else None


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """One instance: its service, its number from 1, the port of its health pages, and the release that it runs."""

    service: str
    number: int
    port: int
    release: str = INSTALLED

    @property
    def name(self) -> str:
        """Name of the instance in logs and metrics."""
        return f"{self.service}-{self.number}"


def read_scale(texts: Sequence[str]) -> dict[str, int]:
    """`["normalize=3", "egest=2"]` as a mapping.

    Raises:
        Misconfigured: unknown service, or not a number of instances.
    """
    scale: dict[str, int] = {}
    for text in texts:
        service, _, count = text.partition("=")
        if service not in FLOW:
            raise Misconfigured(
                f"--scale {text}: no service is called {service!r}; expected one of {', '.join(FLOW)}"
            )
        if not count.isdecimal() or int(count) > MAX_INSTANCES:
            raise Misconfigured(
                f"--scale {text}: expected a number of instances, for example {service}=2, at most {MAX_INSTANCES}"
            )
        scale[service] = int(count)
    return scale


def instance_name(plan: Plan, spec: InstanceSpec) -> str:
    """Name of an instance in logs and consumer groups: on a Kafka that several machines share it names the machine."""
    return f"{socket.gethostname()}-{spec.name}" if plan.kafka else spec.name


def command(service: str) -> list[str]:
    """The command that runs a service with this Python; `-P` keeps the current folder off the module path."""
    return [sys.executable, "-P", "-m", f"hifi_{service}"]


def environment(
    plan: Plan,
    spec: InstanceSpec,
    bootstrap: str,
    java_home: Path | None,
    security: KafkaSecurity | None = None,
) -> dict[str, str]:
    """All variables of one instance: those of this process, the plan's, the mesh's, and `own_env`; later ones win.

    Args:
        plan: of the mesh.
        spec: the instance.
        bootstrap: Kafka's bootstrap servers.
        java_home: folder of Java, for enrich and lake.
        security: how the instance connects to Kafka; None: as this process's environment says.
    """
    # Of the worker that `hifi up --connect` runs beside the mesh.
    connect = {"HIFI_CONNECT_CREDENTIALS_FILE": str(plan.data / "connect" / CREDENTIALS)}
    variables = connect | dict(os.environ) | dict(plan.env)
    for name in (PRINCIPAL_VARIABLE, f"{PRINCIPAL_VARIABLE}_FILE"):
        variables.pop(name, None)
    if security is not None:
        variables = {name: value for name, value in variables.items() if not name.startswith(SECURITY_PREFIX)}
        variables |= security.environment
    folders = [*map(str, plan.python_path), variables.get(FUNCTION_FOLDERS, "")]
    credentials = map(str, (plan.data / "kafka", plan.data / "connect", plan.token))
    variables |= {
        "HIFI_KAFKA": bootstrap,
        "HIFI_STREAM": plan.stream,
        "HIFI_HOST": "127.0.0.1",
        "HIFI_PORT": str(spec.port),
        "HIFI_INSTANCE": instance_name(plan, spec),
        "HIFI_LOG_FORMAT": "json",
        FUNCTION_FOLDERS: os.pathsep.join(folder for folder in folders if folder),
        CREDENTIAL_FOLDERS: os.pathsep.join(credentials),
    }
    if spec.service == "ingest":
        variables["HIFI_INGEST_PORT"] = str(plan.port)
    if spec.service == "observe":
        variables["HIFI_OBSERVE_PORT"] = str(plan.console_port if spec.number == 1 else 0)
        variables["HIFI_MANAGE_URL"] = plan.manage or ""
        variables["HIFI_VIEW_URL"] = plan.view_console or ""
    variables |= _view_variables(plan, spec) | _state_variables(plan, spec)
    if spec.service == "manage":
        variables["HIFI_MANAGE_PORT"] = str(plan.manage_port)
        variables["HIFI_OBSERVE_URL"] = plan.console or "" if plan.console_port else ""
        variables["HIFI_VIEW_URL"] = plan.view_console or ""
    if plan.control_topics is not None:
        variables["HIFI_CONTROL"] = plan.control_topics.control
    if spec.service == "scale":
        variables["HIFI_SCALE_BOUNDS"] = ",".join(
            f"{service}={lowest}-{highest}" for service, (lowest, highest) in plan.bounds.items()
        )
    if spec.service == "enrich":
        variables["HIFI_ENRICH_TRIGGER"] = plan.trigger
    if spec.service in {"enrich", "lake", "state"} and java_home is not None:
        variables["JAVA_HOME"] = str(java_home)
    return variables | dict(plan.own_env.get(spec.name, {}))


def _state_variables(plan: Plan, spec: InstanceSpec) -> dict[str, str]:
    """Variables of an instance of state, which has a folder of its own; none for another service."""
    return {"HIFI_STATE_DATA": str(plan.data / "state" / spec.name)} if spec.service == "state" else {}


def _view_variables(plan: Plan, spec: InstanceSpec) -> dict[str, str]:
    """Variables of an instance of view, which has a folder of its own; none for another service."""
    if spec.service != "view":
        return {}
    return {
        "HIFI_VIEW_PORT": str(plan.view_port if spec.number == 1 else 0),
        "HIFI_VIEW_DATA": str(plan.data / "views" / spec.name),
        "HIFI_OBSERVE_URL": plan.console or "" if plan.console_port else "",
        "HIFI_MANAGE_URL": plan.manage or "",
    } | ({} if plan.views is None else {"HIFI_VIEW_DECLARATIONS": str(plan.views)})
