"""The mesh of a Compose project, changed through the Docker engine.

A new container is made after the model of one that Compose made: the same settings, secrets, limits and networks,
with another number or image. So the executor needs neither the Compose files nor the secrets, and Compose takes the
container for its own. The engine itself restarts containers that end.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import aiodocker
import orjson
from aiodocker.containers import DockerContainer

from hifi.control.releases.desired_release import INSTALLED
from hifi.runtime import log
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.containers.engine_answers import engine_answers
from hifi_infra.containers.executor_state import StateFile
from hifi_infra.containers.service_container import (
    NEXT,
    ONE_OFF,
    PROJECT,
    SERVICE,
    ServiceContainer,
    creation,
    read,
)
from hifi_infra.mesh.executed_instance import ExecutedInstance
from hifi_infra.mesh.health_probe import readiness
from hifi_infra.mesh.image_release import image_of, release_of
from hifi_infra.mesh.plan import FLOW, MAX_INSTANCES

HEALTH_PORT: Final = 9000
"""Of the health pages in every image."""
_RECEIVES: Final = "ingest"
"""Gets its work through a port of the host, and so in one container only."""
_NANOSECONDS: Final = 1_000_000_000
_EXITED: Final = 0
_KILLED: Final = 137

logger = log.get(__name__)


class ContainerMesh:
    """The services of a Compose project. Call `refresh` every few seconds.

    Args:
        docker: client of the engine.
        project: of Compose.
        installed: tag of the images that the project was started with.
        kept: state of the executor.
    """

    def __init__(
        self, docker: aiodocker.Docker, project: str, installed_tag: str, state_file: StateFile
    ) -> None:
        self._docker = docker
        self._project = project
        self._installed_tag = installed_tag
        self._state_file = state_file
        self._refreshing = asyncio.Lock()
        self._changing = asyncio.Lock()
        self._executed: list[ExecutedInstance] = []
        self._began_s = time.time()
        self._unready: set[tuple[str, float]] = set()
        """Containers, each with the time of its start, that were not ready when they were read."""
        self._ready_after_s: dict[tuple[str, float], float | None] = {}
        """The same to the seconds until they were ready; None: nobody saw it."""
        self._cpu_s: dict[str, tuple[float, float]] = {}
        """Container to its CPU time before its last restart, and since then."""

    def executed(self) -> Sequence[ExecutedInstance]:
        """Every instance of the data plane at the last `refresh`."""
        return self._executed

    @property
    def ready(self) -> bool:
        """Whether every instance was ready at the last `refresh`."""
        return all(instance.ready for instance in self._executed)

    async def refresh(self) -> None:
        """Read every instance.

        Raises:
            Retryable: the engine does not answer.
        """
        async with self._refreshing:
            with engine_answers():
                containers = [container for container in await self._all() if not container.is_next]
                self._executed = list(await asyncio.gather(*map(self._read, containers)))
                ids = {container.id for container in containers}
                self._cpu_s = {name: cpu_s for name, cpu_s in self._cpu_s.items() if name in ids}
                self._unready = {key for key in self._unready if key[0] in ids}
                self._ready_after_s = {
                    key: seconds for key, seconds in self._ready_after_s.items() if key[0] in ids
                }

    async def finish(self) -> None:
        """Finish what an earlier executor left half done.

        Raises:
            Retryable: the engine does not answer.
        """
        async with self._changing:
            with engine_answers():
                await self._finish(await self._all())

    async def scale(self, service: str, count: int, reason: str = "") -> None:
        """Set the number of instances; returns once surplus ones have drained.

        Raises:
            Misconfigured: unknown service, or a number that cannot be.
            Retryable: instances would end while a deployment compares them, or the engine does not answer.
        """
        if service not in FLOW or not 1 <= count <= MAX_INSTANCES:
            raise Misconfigured(
                f"{service}={count}: name one of {', '.join(FLOW)} and 1 to {MAX_INSTANCES} instances; stop a service "
                "with `docker compose stop`"
            )
        async with self._change():
            containers = await self._service(service)
            if count < len(containers) and len({self._release(container) for container in containers}) > 1:
                raise Retryable(f"a deployment of {service} runs: its instances have different releases")
            while len(containers) > count:
                await self._end(containers.pop())
            while len(containers) < count:
                release = self._state_file.state.releases.get(service, INSTALLED)
                containers.append(await self._add(containers[0], _free(containers), release))
        logger.info("instances-changed", service=service, count=count, reason=reason)

    async def set_release(self, name: str, release: str, reason: str) -> None:
        """Have an instance run a release: start it if there is none of this name, else drain and replace it.

        Nothing is done if it runs the release already.

        Raises:
            Misconfigured: no such service, or the engine has no image with this tag.
            Retryable: the engine does not answer.
        """
        service, number = _parsed(name)
        async with self._change():
            containers = await self._service(service)
            old_container = next((container for container in containers if container.number == number), None)
            if old_container is not None and self._release(old_container) == release:
                return
            if old_container is None:
                await self._add(containers[0], number, release)
            else:
                await self._replace(old_container, release)
        logger.info("release-changed", service=service, instance=name, release=release, reason=reason)

    async def remove(self, name: str, reason: str) -> None:
        """Drain and end an instance. Nothing is done if there is none of this name.

        Raises:
            Misconfigured: no such service, or it is the only instance.
            Retryable: the engine does not answer.
        """
        service, number = _parsed(name)
        async with self._change():
            containers = await self._service(service)
            same_number = [container for container in containers if container.number == number]
            if same_number and len(containers) == 1:
                raise Misconfigured(f"{name} is the only instance of {service}: it stays")
            for container in same_number:
                await self._end(container)
        logger.info("instance-removed", service=service, instance=name, reason=reason)

    async def set_default_release(self, service: str, release: str) -> None:
        """Have instances of a service that are made from now on run a release."""
        self._state_file.keep_release(service, release)

    async def _add(self, template: ServiceContainer, number: int, release: str) -> ServiceContainer:
        if template.service == _RECEIVES and template.publishes:
            raise Misconfigured(
                f"{template.service} is reached through a port of the host, which one container has: it can neither be "
                "scaled nor deployed with a canary. Upgrade it with `docker compose up`"
            )
        name = f"{template.project}-{template.service}-{number}"
        container = await self._create(template, number, release, name)
        await container.start()
        return read(await container.show())

    async def _replace(self, old_container: ServiceContainer, release: str) -> None:
        """The new container is made first: when its image is missing, nothing has changed."""
        replacement = await self._create(
            old_container, old_container.number, release, old_container.name + NEXT
        )
        await self._end(old_container)
        await self._take_over(replacement, old_container.name)

    async def _create(
        self, template: ServiceContainer, number: int, release: str, name: str
    ) -> DockerContainer:
        target = image_of(release, template.image, self._installed_tag)
        try:
            image_details = await self._docker.images.inspect(target)
        except aiodocker.DockerError as error:
            if error.status != 404:
                raise
            raise Misconfigured(f"the engine has no image {target}: build or pull it first") from None
        image = await self._docker.images.inspect(template.image_id)
        body = creation(template, image, number, target, image_details["Id"], release)
        return await self._docker.containers.create(dict(body), name=name)

    async def _take_over(self, replacement: DockerContainer, name: str) -> None:
        await replacement.rename(name)
        await replacement.start()

    async def _end(self, service_container: ServiceContainer) -> None:
        """Drain and remove a container with its own volumes; those that have a name stay."""
        container = self._docker.containers.container(service_container.id)
        await self._stop(service_container)
        code = (await container.show())["State"]["ExitCode"]
        if service_container.running and code != _EXITED:
            reason = "it did not drain in time" if code == _KILLED else ""
            logger.error("drain-failed", instance=service_container.instance, exit_status=code, why=reason)
        await container.delete(force=True, v=True)

    async def _start_again(self, service_container: ServiceContainer) -> None:
        """Have a container run that was stopped, or is stopping: first what it drains has to end."""
        container = self._docker.containers.container(service_container.id)
        if service_container.running:
            await self._stop(service_container)
        await container.start()

    async def _stop(self, service_container: ServiceContainer) -> None:
        """Drain a container; returns once it has ended."""
        container = self._docker.containers.container(service_container.id)
        await container.stop(t=service_container.stop_s, timeout=service_container.stop_s + 30)

    async def _service(self, service: str) -> list[ServiceContainer]:
        """Containers of a service by number.

        Raises:
            Misconfigured: it has none, so there is no model for a new one.
        """
        containers = [
            container for container in await self._finish(await self._all()) if container.service == service
        ]
        if not containers:
            raise Misconfigured(
                f"{service} has no container in the project {self._project}: start it with `docker compose up` first"
            )
        return sorted(containers, key=lambda container: container.number)

    async def _finish(self, containers: Sequence[ServiceContainer]) -> Sequence[ServiceContainer]:
        """Containers after every change was finished that an earlier executor left half done.

        A replacement is dropped where the old container is still there, which may have been told to stop
        and is started again.
        """
        unfinished_containers = [
            container
            for container in containers
            if container.is_next or (container.release and container.created)
        ]
        if not unfinished_containers:
            return containers
        containers_by_name = {container.name: container for container in containers}
        for service_container in unfinished_containers:
            container, name = (
                self._docker.containers.container(service_container.id),
                service_container.name.removesuffix(NEXT),
            )
            if not service_container.is_next:
                await container.start()
            elif name in containers_by_name:
                await self._start_again(containers_by_name[name])
                await container.delete(force=True, v=True)
            else:
                await self._take_over(container, name)
            logger.warning("change-finished", container=service_container.name)
        return await self._all()

    async def _all(self) -> list[ServiceContainer]:
        labels = [f"{PROJECT}={self._project}", f"{ONE_OFF}=False"]
        project_containers = await self._docker.containers.list(
            all=True, filters=orjson.dumps({"label": labels}).decode()
        )
        flow_containers = [
            container for container in project_containers if container["Labels"].get(SERVICE) in FLOW
        ]
        return [
            read(details)
            for details in await asyncio.gather(*(container.show() for container in flow_containers))
        ]

    async def _read(self, container: ServiceContainer) -> ExecutedInstance:
        is_ready, used_s, rss_bytes = False, 0.0, 0
        if container.running and container.address:
            probe, stats = await asyncio.gather(
                readiness(HEALTH_PORT, container.address),
                self._docker.containers.container(container.id).stats(stream=False),
            )
            is_ready = probe.ready
            used_s, rss_bytes = _used(stats[0] if stats else {})
        return ExecutedInstance(
            container.service,
            container.instance,
            HEALTH_PORT,
            self._cpu_seconds(container.id, used_s),
            self._release(container),
            is_ready,
            self._note_ready(container, ready=is_ready),
            container.restarts,
            rss_bytes,
            f"{container.host_name}-",
            container.address,
        )

    def _note_ready(self, container: ServiceContainer, *, ready: bool) -> float | None:
        """Seconds from the start of a container until it was ready, as far as that was seen."""
        key = (container.id, container.started_s)
        if not ready:
            self._unready.add(key)
        elif key not in self._ready_after_s:
            start_is_known = key in self._unready or container.started_s > self._began_s
            self._ready_after_s[key] = time.time() - container.started_s if start_is_known else None
        return self._ready_after_s.get(key)

    def _cpu_seconds(self, container: str, used_s: float) -> float:
        """CPU time over all restarts of a container; the engine counts from 0 at each."""
        earlier_s, last_s = self._cpu_s.get(container, (0.0, 0.0))
        if used_s:  # 0: it could not be read
            earlier_s, last_s = earlier_s + (last_s if used_s < last_s else 0.0), used_s
            self._cpu_s[container] = (earlier_s, last_s)
        return earlier_s + last_s

    def _release(self, container: ServiceContainer) -> str:
        """The release of a container, as an actor names it."""
        return release_of(container.image, container.release, self._installed_tag)

    @contextlib.asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        """One change at a time; what it leaves is read at once."""
        async with self._changing:
            with engine_answers():
                yield
            await self.refresh()


def _used(stats: Mapping[str, Any]) -> tuple[float, int]:
    """CPU time in seconds and resident memory in bytes; cgroups of version 1 call it `rss`, of version 2 `anon`.

    The engine leaves out what it cannot read of a container that is ending.
    """
    memory_stats = stats.get("memory_stats", {}).get("stats", {})
    used_s = stats.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage", 0) / _NANOSECONDS
    return used_s, int(memory_stats.get("total_rss", memory_stats.get("anon", 0)))


def _free(containers: Sequence[ServiceContainer]) -> int:
    used_numbers = {container.number for container in containers}
    return next(number for number in range(1, MAX_INSTANCES + 2) if number not in used_numbers)


def _parsed(name: str) -> tuple[str, int]:
    """Service and number of `normalize-2`."""
    service, _, number = name.rpartition("-")
    if service not in FLOW or not number.isdecimal() or not 1 <= int(number) <= MAX_INSTANCES:
        raise Misconfigured(
            f"{name}: name an instance of {', '.join(FLOW)} and a number up to {MAX_INSTANCES}, such as normalize-2"
        )
    return service, int(number)
