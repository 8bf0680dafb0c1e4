"""`python -m hifi_infra.containers.colours`: brings about the record of two colours that are projects of Compose.

As `hifi up --colours` does it with processes: the shares at the front, which colours run, and the shift away from a
colour that has ended. It tells commands what it sees of a colour, and changes nothing that the record does not say.
"""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Final

import aiodocker
from pydantic import Field

from hifi.control.colours import NAMES, Colour, ColourState, FrontAddress
from hifi.http.server import listen, serve
from hifi.service import Service, run
from hifi.settings import ServiceSettings
from hifi.topics import ControlTopics
from hifi_infra.colours.colour_log import ColourLog
from hifi_infra.colours.colour_loop import ColourLoop
from hifi_infra.colours.first_record import first_record
from hifi_infra.colours.switch import Switch
from hifi_infra.containers.colour_app import colour_app, kafka_of
from hifi_infra.containers.colour_places import ColourProjects
from hifi_infra.containers.front_container import FrontContainer
from hifi_infra.containers.project_runner import ProjectRunner

_KAFKA: Final = "kafka"
_FRONT: Final = "front"
_BY: Final = "colours"


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
    colours_engine: str = Field("unix:///var/run/docker.sock", description="Address of the Docker engine.")


async def divide(service: Service, settings: ColoursSettings) -> None:
    """Follow the record until the service stops."""
    service.health.block(_KAFKA, "the control plane's Kafka has not been read yet")
    service.health.block(_FRONT, "the front does not answer yet")
    docker = aiodocker.Docker(url=settings.colours_engine)
    runners = {name: ProjectRunner(docker, f"{settings.colours_project}-{name}") for name in NAMES}
    sock = listen(settings.host, settings.colours_port)
    places = ColourProjects(f"http://127.0.0.1:{sock.getsockname()[1]}")
    front = FrontContainer(
        settings.colours_folder, settings.colours_url, {name: [f"{name}-ingest:8080"] for name in NAMES}
    )
    control = ControlTopics(f"{settings.stream}-control")
    log = ColourLog(settings.kafka, control.colours, settings.instance)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(docker.close)
        stack.push_async_callback(log.stop)
        if not await service.unless_stopped(log.start()):
            return
        addresses = {
            name: Colour(
                0,
                ColourState.DARK,
                (f"http://{name}-ingest:8080",),
                f"http://{name}-observe:9200",
                kafka_of(name),
            )
            for name in NAMES
        }
        fronts = (FrontAddress(front.url, front.stats),)
        await log.write(first_record(log.newest, addresses, fronts, time.time_ns() // 1_000_000, _BY))
        await log.catch_up()
        service.health.unblock(_KAFKA)
        await stack.enter_async_context(serve(colour_app(runners), sock, drain_s=1))
        loop = ColourLoop(
            log, runners, [front], lambda by: Switch(settings.kafka, settings.topics, places, by), _BY
        )
        service.health.state = "running"
        following = asyncio.create_task(loop.follow(), name="follow the colours")
        try:
            while not service.stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(service.stopping.wait(), 1)
                if front.running:
                    service.health.unblock(_FRONT)
                if following.done():
                    following.result()  # an error that it does not expect ends the service, and is told
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


if __name__ == "__main__":
    run("colours", ColoursSettings, divide)
