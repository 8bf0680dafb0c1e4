"""A container of a Compose project as the Docker engine describes it, and the body that creates one like it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

PROJECT: Final = "com.docker.compose.project"
SERVICE: Final = "com.docker.compose.service"
NUMBER: Final = "com.docker.compose.container-number"
ONE_OFF: Final = "com.docker.compose.oneoff"
_IMAGE: Final = "com.docker.compose.image"
_REPLACED: Final = "com.docker.compose.replace"
RELEASE: Final = "io.github.hifi.release"
"""Label of the release, as an actor named it, of a container that the executor made."""
NEXT: Final = "-next"
"""End of the name of a container until the one that it replaces has gone."""
_ID_LENGTH: Final = 12

Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ServiceContainer:
    """One container of a service.

    Attributes:
        id: of the engine.
        name: as in `hifi-egest-2`.
        project: of Compose.
        service: of Compose.
        number: within the service, from 1.
        image: as in `hifi-egest:1.3`.
        image_id: of the engine.
        release: what an actor called it when the executor made the container; empty: Compose made it.
        created: whether it was never started.
        running: whether it runs.
        started_s: when it was started last, seconds since 1970 UTC.
        restarts: how often the engine has started it again after it had ended by itself.
        address: IP address in the network of the project; empty: it has none.
        stop_s: bound on its draining, seconds.
        publishes: whether a port of the host leads to it.
        host_name: of the container, how its name in consumer groups begins.
        inspected: everything that the engine says.
    """

    id: str
    name: str
    project: str
    service: str
    number: int
    image: str
    image_id: str
    release: str
    created: bool
    running: bool
    started_s: float
    restarts: int
    address: str
    stop_s: int
    publishes: bool
    host_name: str
    inspected: Json

    @property
    def instance(self) -> str:
        """Name of the instance, such as `egest-2`."""
        return f"{self.service}-{self.number}"

    @property
    def is_next(self) -> bool:
        """Whether it waits for the one that it replaces to be gone."""
        return self.name.endswith(NEXT)


def read(inspection: Json) -> ServiceContainer:
    """A container from the engine's answer to `GET /containers/ID/json`.

    Raises:
        KeyError: it does not belong to a service of a Compose project.
    """
    config, state = inspection["Config"], inspection["State"]
    labels = config["Labels"]
    networks = inspection["NetworkSettings"]["Networks"]
    return ServiceContainer(
        id=inspection["Id"],
        name=inspection["Name"].removeprefix("/"),
        project=labels[PROJECT],
        service=labels[SERVICE],
        number=int(labels[NUMBER]),
        image=config["Image"],
        image_id=inspection["Image"],
        release=labels.get(RELEASE, ""),
        created=state["Status"] == "created",
        running=state["Running"] and not state.get("Restarting", False),
        started_s=_seconds(state["StartedAt"]),
        restarts=inspection["RestartCount"],
        address=_address(networks, f"{labels[PROJECT]}_default"),
        stop_s=config.get("StopTimeout") or 10,
        publishes=bool(inspection["HostConfig"].get("PortBindings")),
        host_name=config["Hostname"],
        inspected=inspection,
    )


def creation(
    template: ServiceContainer, image: Json, number: int, target: str, target_id: str, release: str
) -> Json:
    """The body of `POST /containers/create` for a container like another one, with another image and number.

    What the other container has from its image is left out, so that the new one has it from its own. A port of the host
    is published only under the number that publishes it: two containers cannot have it.

    Args:
        template: a container of the same service.
        image: its image, as the engine describes it.
        number: of the new container.
        target: image of the new container.
        target_id: the engine's name for it.
        release: what the actor calls it.
    """
    config = dict(template.inspected["Config"])
    defaults = image["Config"]
    name = f"{template.project}-{template.service}-{number}"
    config["Labels"] = _without_defaults(config["Labels"], defaults.get("Labels")) | {
        NUMBER: str(number),
        _IMAGE: target_id,
        RELEASE: release,
    }
    config["Labels"].pop(_REPLACED, None)
    config["Env"] = [variable for variable in config["Env"] if variable not in (defaults.get("Env") or ())]
    check, default_check = config.get("Healthcheck"), defaults.get("Healthcheck")
    if check and default_check:
        config["Healthcheck"] = _without_defaults(check, {"Test": default_check["Test"]})
    for key in ("Cmd", "Entrypoint", "ExposedPorts", "StopSignal", "User", "Volumes", "WorkingDir"):
        if config.get(key) == defaults.get(key):
            config.pop(key, None)
    if template.id.startswith(template.host_name):  # made by the engine
        config.pop("Hostname", None)
    host = dict(template.inspected["HostConfig"])
    if number != template.number:
        host["PortBindings"] = {}
    networks = {
        network: {"Aliases": [*_aliases(template, settings.get("Aliases") or ()), name]}
        for network, settings in template.inspected["NetworkSettings"]["Networks"].items()
    }
    return {**config, "Image": target, "HostConfig": host, "NetworkingConfig": {"EndpointsConfig": networks}}


def _address(networks: Json, preferred_network: str) -> str:
    """Of a container that is in several networks: in the preferred one, which the services of the project share."""
    network_names = [preferred_network, *networks]
    addresses = [networks[name].get("IPAddress", "") for name in network_names if name in networks]
    return next(filter(None, addresses), "")


def _aliases(template: ServiceContainer, aliases: Iterable[str]) -> Sequence[str]:
    """Names that all containers of the service share."""
    return [
        alias
        for alias in aliases
        if alias not in (template.id[:_ID_LENGTH], template.name.removesuffix(NEXT))
    ]


def _without_defaults(values: Json, defaults: Json | None) -> dict[str, Any]:
    return {name: value for name, value in values.items() if (defaults or {}).get(name) != value}


def _seconds(text: str) -> float:
    """`2026-11-24T23:58:01.123456789Z` as seconds since 1970 UTC. Digits after the microseconds are dropped."""
    whole_seconds, _, fraction = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole_seconds}.{fraction[:6]:0<6}+00:00").timestamp()
