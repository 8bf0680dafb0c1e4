"""`python -m hifi_infra.containers.colours`: the service `colours` of two colours that are projects of Compose."""

import asyncio
import contextlib
import socket
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import aiodocker
from pydantic import Field

from hifi.delivery.colours import NAMES, Colour, ColourState
from hifi.kafka.settings import ServiceSettings
from hifi.runtime.http.server import listen
from hifi.runtime.service import Service, run
from hifi.runtime.settings import load
from hifi_infra.colours.burst import BurstPolicy
from hifi_infra.colours.burst_splitter import BurstSplitter, accepted_events
from hifi_infra.colours.colour_loop import ColourLoop
from hifi_infra.colours.colours_service import ColoursService, report_certificates
from hifi_infra.colours.front_settings import FrontSettings
from hifi_infra.containers.container_mesh import HEALTH_PORT
from hifi_infra.containers.front_container import FrontContainer
from hifi_infra.containers.project_runner import ProjectRunner

_SPLIT_BY: Final = "colours, above HIFI_COLOURS_SPLIT_ABOVE"
_SECOND: Final = "second"


class ColoursSettings(ServiceSettings):
    """Settings of the service `colours`: environment variables with the prefix `HIFI_COLOURS_`."""

    colours_port: int = Field(9500, ge=0, le=65535, description="Port on which it tells what it sees.")
    colours_project: str = Field(
        "hifi", description="Beginning of the names of the colours' projects, `hifi-blue` and `hifi-green`."
    )
    colours_folder: Path = Field(Path("/run/front"), description="Volume that it shares with HAProxy.")
    colours_url: str = Field(
        "http://127.0.0.1:8080", description="URL of the front for senders, as it is shown."
    )
    colours_second_url: str = Field(
        "",
        description="URL of the second front for senders; its folder is `second` in the volume. Empty: none.",
    )
    colours_split_above: float = Field(
        0,
        ge=0,
        description="Events per second above which both colours share the requests; 0: that is left to people.",
    )
    colours_engine: str = Field("unix:///var/run/docker.sock", description="Address of the Docker engine.")


async def divide(service: Service, settings: ColoursSettings) -> None:
    """Follow the record until the service stops."""
    colours = ColoursService(service, settings, listen(settings.host, settings.colours_port))
    certificate = load(FrontSettings).certificate(service.health)
    docker = aiodocker.Docker(url=settings.colours_engine)
    runners = {name: ProjectRunner(docker, f"{settings.colours_project}-{name}") for name in NAMES}
    ingest = {name: [f"{_ingest(name)}:8080"] for name in NAMES}
    fronts = [FrontContainer(settings.colours_folder, settings.colours_url, ingest, certificate)]
    if settings.colours_second_url:
        second = settings.colours_folder / _SECOND
        fronts.append(FrontContainer(second, settings.colours_second_url, ingest, certificate))
    addresses = {
        name: Colour(
            0,
            ColourState.IDLE,
            (f"http://{_ingest(name)}:8080",),
            f"http://{name}-observe:9200",
            f"{name}-kafka:9092",
        )
        for name in NAMES
    }

    def more_work(loop: ColourLoop) -> Sequence[Coroutine[Any, Any, None]]:
        """The splitter of bursts, if there is a limit."""
        if not settings.colours_split_above:
            return ()
        policy = BurstPolicy(settings.colours_split_above)
        splitter = BurstSplitter(policy, _SPLIT_BY, colours.operations, _accepted_events)
        return [splitter.follow(lambda: loop.colours)]

    try:
        await colours.follow(runners, fronts, addresses, more_work)
    finally:
        await docker.close()


def _ingest(name: str) -> str:
    """Host name of all instances of ingest of a colour."""
    return f"{name}-ingest"


async def _accepted_events() -> float | None:
    """Events that were accepted, as `accepted_events` counts them, of all instances of ingest whose colour runs."""
    ingests: list[tuple[str, int]] = []
    for name in NAMES:
        with contextlib.suppress(socket.gaierror):  # it is asleep
            addresses = await asyncio.get_running_loop().getaddrinfo(
                _ingest(name), HEALTH_PORT, type=socket.SOCK_STREAM
            )
            ingests += [(str(address[0]), HEALTH_PORT) for *_, address in addresses]
    return await accepted_events(ingests)


if __name__ == "__main__":
    run("colours", ColoursSettings, divide, report_certificates)
