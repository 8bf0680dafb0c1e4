"""The containers of a Compose project that is one colour: start them, drain them in order, tell what they wait for."""

import asyncio
import contextlib
from typing import Final

import aiodocker
import orjson
from aiodocker.containers import DockerContainer

from hifi.delivery.colours import ColourSetup
from hifi.runtime import log
from hifi_infra.containers.engine_answers import engine_answers
from hifi_infra.containers.service_container import ONE_OFF, PROJECT, SERVICE
from hifi_infra.mesh.plan import FLOW

_KAFKA: Final = "kafka"
_JOBS: Final = ("setup",)
"""Services that end by themselves."""
_HEALTHY: Final = "healthy"

logger = log.get(__name__)


class ProjectRunner:
    """Starts and ends the containers of one colour, which Compose made.

    As `hifi_infra.colours.colours_service.KeptColour`.

    Args:
        docker: client of the engine.
        project: of Compose.
    """

    no_sleep = ""

    def __init__(self, docker: aiodocker.Docker, project: str) -> None:
        self._docker = docker
        self._project = project
        self.was_started = False

    async def is_running(self) -> bool:
        """Implement `ColourRunner`: whether any container runs."""
        running_containers = [
            container for container in await self._all() if container["State"] in ("running", "restarting")
        ]
        self.was_started |= bool(running_containers)
        return bool(running_containers)

    async def waits_for(self) -> list[str]:
        """Conditions that it waits for before all of its services are healthy; empty when they are.

        Raises:
            Retryable: the engine does not answer.
        """
        conditions = []
        for container in await self._all():
            health = "" if container["State"] != "running" else _health(container["Status"])
            if health != _HEALTHY:
                conditions.append(
                    f"{container['Names'][0].removeprefix('/')}: {health or container['State']}"
                )
        if await self.is_running():
            return conditions
        if not await self._is_set_up():
            text = (
                f"`setup` of the project {self._project} has not run since its containers were made: start them by "
                "Compose with the same variables, as in `infra/docker/colours.sh compose COLOUR up --detach --wait`"
            )
            return [text]
        return conditions or [f"the project {self._project} has no container"]

    async def start(self, setup: ColourSetup, *, in_background: bool) -> None:
        """Implement `ColourRunner`. Compose has started these containers once, and its files have the setup."""
        del setup, in_background
        if not await self._is_set_up():
            return
        containers = await self._all()
        with engine_answers():
            await asyncio.gather(*(container.start() for container in containers))
        self.was_started |= bool(containers)
        logger.info("colour-started", project=self._project, containers=len(containers))

    async def stop(self) -> None:
        """Implement `ColourRunner`: service by service in the order of an event's path, Kafka last."""
        with engine_answers():
            running_containers: dict[str, list[DockerContainer]] = {}
            # The labels are read before `show`, which replaces all that is known of a container.
            for container in await self._all():
                running_containers.setdefault(container["Labels"][SERVICE], []).append(container)
            for service in (*FLOW, *sorted(running_containers.keys() - {*FLOW, _KAFKA}), _KAFKA):
                await asyncio.gather(
                    *(self._stop(container) for container in running_containers.get(service, ()))
                )
        logger.info("colour-stopped", project=self._project)

    async def adjust_priority(self, *, is_only: bool) -> None:
        """Implement `ColourRunner`: containers have their limits of CPU time instead."""

    async def _stop(self, container: DockerContainer) -> None:
        with contextlib.suppress(KeyError):
            config = (await container.show())["Config"]
            await container.stop(t=config.get("StopTimeout") or 10)

    async def _is_set_up(self) -> bool:
        """Whether the jobs of the project have ended; before, Compose starts its containers in their order."""
        jobs = [job for job in await self._list_containers() if job["Labels"].get(SERVICE) in _JOBS]
        return bool(jobs) and all(job["State"] == "exited" for job in jobs)

    async def _all(self) -> list[DockerContainer]:
        """Containers of the project that should run.

        Raises:
            Retryable: the engine does not answer.
        """
        return [
            container
            for container in await self._list_containers()
            if container["Labels"].get(SERVICE) not in _JOBS
        ]

    async def _list_containers(self) -> list[DockerContainer]:
        filters = orjson.dumps({"label": [f"{PROJECT}={self._project}", f"{ONE_OFF}=False"]}).decode()
        with engine_answers():
            return await self._docker.containers.list(all=True, filters=filters)


def _health(status: str) -> str:
    """`Up 3 minutes (health: starting)` as `starting`; a container without a check is healthy while it runs."""
    _, bracket, health = status.partition("(")
    return health.rstrip(")").removeprefix("health: ") if bracket else _HEALTHY
