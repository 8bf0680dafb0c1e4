"""`python -m hifi_infra.containers.colours`: brings about the record of two colours that are projects of Compose.

As `hifi up --colours` does it with processes: the shares at the front, which colours run, and the shift away from a
colour that has ended. It tells commands what it sees of a colour, and changes nothing that the record does not say.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import aiodocker
from pydantic import Field

from hifi.delivery.colours import NAMES, Colour, ColourState, FrontAddress
from hifi.kafka.certificate_reports import report_to
from hifi.kafka.settings import ServiceSettings
from hifi.kafka.topics import ControlTopics
from hifi.runtime.http.server import listen, serve
from hifi.runtime.service import Service, run
from hifi.runtime.settings import load
from hifi_infra.colours.burst import BurstPolicy
from hifi_infra.colours.burst_splitter import BurstSplitter, accepted_events
from hifi_infra.colours.colour_log import ColourLog
from hifi_infra.colours.colour_loop import ColourLoop
from hifi_infra.colours.colours_at_start import colours_at_start
from hifi_infra.colours.front_settings import FrontSettings
from hifi_infra.colours.operations import ColourOperations
from hifi_infra.containers.colour_app import colour_app, kafka_of
from hifi_infra.containers.colour_projects import ColourProjects
from hifi_infra.containers.container_mesh import HEALTH_PORT
from hifi_infra.containers.front_container import FrontContainer
from hifi_infra.containers.project_runner import ProjectRunner

_KAFKA: Final = "kafka"
_FRONT: Final = "front"
_BY: Final = "colours"
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
    service.health.block(_KAFKA, "the control plane's Kafka has not been read yet")
    service.health.block(_FRONT, "the front does not answer yet")
    docker = aiodocker.Docker(url=settings.colours_engine)
    runners = {name: ProjectRunner(docker, f"{settings.colours_project}-{name}") for name in NAMES}
    sock = listen(settings.host, settings.colours_port)
    runtime = ColourProjects(f"http://127.0.0.1:{sock.getsockname()[1]}")
    ingest = {name: [f"{_ingest(name)}:8080"] for name in NAMES}
    certificate = load(FrontSettings).certificate(service.health)
    fronts = [FrontContainer(settings.colours_folder, settings.colours_url, ingest, certificate)]
    if settings.colours_second_url:
        second = settings.colours_folder / _SECOND
        fronts.append(FrontContainer(second, settings.colours_second_url, ingest, certificate))
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
                ColourState.IDLE,
                (f"http://{_ingest(name)}:8080",),
                f"http://{name}-observe:9200",
                kafka_of(name),
            )
            for name in NAMES
        }
        addresses_of_fronts = tuple(FrontAddress(front.url, front.stats) for front in fronts)
        await log.write(
            colours_at_start(log.newest, addresses, addresses_of_fronts, time.time_ns() // 1_000_000, _BY)
        )
        await log.catch_up()
        service.health.unblock(_KAFKA)
        await stack.enter_async_context(serve(colour_app(runners), sock, drain_s=1))

        def operations(actor: str) -> ColourOperations:
            """The operations of an actor of this name."""
            return ColourOperations(settings.kafka, settings.topics, runtime, actor)

        loop = ColourLoop(log, runners, fronts, operations, _BY)
        service.health.state = "running"
        loops = [asyncio.create_task(loop.follow(), name="follow the colours")]
        if settings.colours_split_above:
            policy = BurstPolicy(settings.colours_split_above)
            splitter = BurstSplitter(policy, _SPLIT_BY, operations, _accepted_events)
            split_loop = splitter.follow(lambda: loop.colours)
            loops.append(asyncio.create_task(split_loop, name="split bursts"))
        await _until_stopped(service, fronts, loops)


async def _until_stopped(
    service: Service, fronts: Sequence[FrontContainer], loops: Sequence[asyncio.Task[None]]
) -> None:
    """Run tasks until the service stops; an unexpected error of theirs is raised."""
    try:
        while not service.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(service.stopping.wait(), 1)
            if all(front.running for front in fronts):
                service.health.unblock(_FRONT)
            for task in loops:
                if task.done():
                    task.result()
    finally:
        for task in loops:
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


async def _report_certificates(service: Service, settings: ColoursSettings) -> None:
    topic = ControlTopics(f"{settings.stream}-control").certificates
    await report_to(topic, settings.kafka, settings.instance, settings.certificate_days, service.health)


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
    run("colours", ColoursSettings, divide, _report_certificates)
