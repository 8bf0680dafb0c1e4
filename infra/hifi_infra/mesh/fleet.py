"""The instances of every service of a mesh, as child processes."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from hifi.errors import Misconfigured
from hifi_infra.mesh import running
from hifi_infra.mesh.instance import Instance
from hifi_infra.mesh.journal import Journal
from hifi_infra.mesh.plan import FLOW, MOST_INSTANCES, START_ORDER, Place, Plan, command, environment
from hifi_infra.mesh.running import RunningInstance
from hifi_infra.ports import free_port
from hifi_infra.process.process import Process

STOP_GRACE_S: Final = 55.0
"""Above the 45 s in which egest drains; a service that takes longer is killed."""


class Fleet:
    """Starts, watches, scales and ends instances as planned.

    Args:
        plan: what there is to be.
        journal: hears what happens.
    """

    def __init__(self, plan: Plan, journal: Journal) -> None:
        self.instances: dict[str, list[Instance]] = {service: [] for service in FLOW}
        self.bootstrap = plan.kafka or ""
        """What instances that start from now on are told of Kafka."""
        self.java_home: Path | None = None
        self._plan = plan
        self._journal = journal

    def all(self) -> Iterator[Instance]:
        """Every instance, in the order of the flow."""
        for service in FLOW:
            yield from self.instances[service]

    @property
    def ready(self) -> bool:
        """Every instance runs and is ready."""
        return all(instance.ready for instance in self.all())

    def reasons(self) -> list[str]:
        """What each instance that is not ready waits for, a line each."""
        lines = []
        for instance in self.all():
            if not instance.ready:
                why = "; ".join(instance.readiness.waiting.values()) or instance.readiness.state
                lines.append(f"  {instance.name}: {instance.refused or why} (log: {instance.log})")
        return lines

    async def start(self, *services: str) -> None:
        """Start what the plan wants of these services and is not there yet."""
        for service in START_ORDER:
            if service in services:
                for _ in range(self._plan.instances(service) - len(self.instances[service])):
                    await self._add(service)

    async def scale(self, service: str, count: int) -> None:
        """Have so many instances of a service: start what is missing, drain and end the last ones.

        Raises:
            Misconfigured: no such service, or too many.
        """
        if service not in FLOW or not 0 <= count <= MOST_INSTANCES:
            raise Misconfigured(
                f"{service}={count}: name one of {', '.join(FLOW)} and 0 to {MOST_INSTANCES} instances"
            )
        instances = self.instances[service]
        while len(instances) > count:
            await instances.pop().stop(STOP_GRACE_S)
        while len(instances) < count:
            await self._add(service)
        self._journal.note("scaled", f"{service} has {count} instance(s) now", service=service, count=count)

    async def look(self) -> None:
        """Ask every instance how it is."""
        await asyncio.gather(*(instance.look() for instance in self.all()))

    async def stop(self, tell: Callable[[str], None]) -> None:
        """Drain and end service by service in the order of the flow; `tell` hears which one is ending."""
        for service in FLOW:
            tell(service)
            await asyncio.gather(*(instance.stop(STOP_GRACE_S) for instance in self.instances[service]))

    async def kill(self) -> None:
        """End everything at once."""
        await asyncio.gather(*(instance.kill() for instance in self.all()))

    def cpu_seconds(self) -> dict[str, float]:
        """Used so far by each service, all its instances together."""
        return {name: sum(one.cpu_seconds() for one in ones) for name, ones in self.instances.items() if ones}

    def rss_bytes(self) -> dict[str, int]:
        """Resident memory now of each service, all its instances together."""
        return {name: sum(one.rss_bytes() for one in ones) for name, ones in self.instances.items() if ones}

    def describe(self) -> list[RunningInstance]:
        """Every instance, also one that has just ended and is about to be started again."""
        return [_described(instance) for instance in self.all() if instance.process.started]

    async def _add(self, service: str) -> None:
        taken = {self._plan.port, self._plan.console_port, *(one.place.port for one in self.all())}
        place = Place(service, len(self.instances[service]) + 1, free_port(but=taken))
        instance = Instance(place, self._process, self._journal)
        self.instances[service].append(instance)
        await instance.start()

    def _process(self, place: Place) -> Process:
        return Process(
            place.name,
            command(place.service),
            log=self._plan.data / "logs" / f"{place.name}.log",
            env=environment(self._plan, place, self.bootstrap, self.java_home),
        )


def _described(instance: Instance) -> RunningInstance:
    pid, place = instance.process.pid, instance.place
    return RunningInstance(
        service=place.service,
        number=place.number,
        pid=pid,
        created=running.created(pid) if instance.process.running else 0.0,
        port=place.port,
        log=instance.log,
    )
