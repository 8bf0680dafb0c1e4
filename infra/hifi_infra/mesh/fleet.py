"""All service instances of a mesh, as child processes."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from hifi.control.releases.desired_release import INSTALLED
from hifi.kafka.security import KafkaSecurity
from hifi.kafka.security.access import user
from hifi.runtime import log
from hifi.runtime.errors import HifiError, Misconfigured, Retryable
from hifi_infra.kafka.credentials import ClusterCredentials
from hifi_infra.kafka.group_members import remove_group_members
from hifi_infra.mesh import running
from hifi_infra.mesh.executed_instance import ExecutedInstance
from hifi_infra.mesh.instance import Instance
from hifi_infra.mesh.journal import Journal
from hifi_infra.mesh.plan import (
    CONTROL,
    FLOW,
    MAX_INSTANCES,
    START_ORDER,
    InstanceSpec,
    Plan,
    command,
    environment,
    instance_name,
)
from hifi_infra.mesh.release import command_of, release_environment, require_release
from hifi_infra.mesh.running import RunningInstance
from hifi_infra.ports import free_port
from hifi_infra.process.process import Process

CONTROL_NICENESS: Final = 5
"""Of the control plane's processes: nobody waits for the start of one, and events do not wait for it."""
STOP_GRACE_S: Final = 55.0
"""Longer than the 45 s in which egest drains; a service that takes longer is killed."""

logger = log.get(__name__)


class Fleet:
    """Starts, probes, scales and ends the instances of a plan.

    Args:
        plan: services and numbers of instances.
        journal: gets what happens to them.
    """

    def __init__(self, plan: Plan, journal: Journal) -> None:
        self.instances: dict[str, list[Instance]] = {service: [] for service in (*CONTROL, *FLOW)}
        self.bootstrap = plan.kafka or ""
        """Bootstrap servers for instances that start from now on."""
        self.java_home: Path | None = None
        self.releases: dict[str, str] = {}
        """Service to the release of its instances that start from now on; `installed` if it is not named."""
        self.executor: Mapping[str, str] = {}
        """Variables with which the actors of the control plane find the executor."""
        self.credentials: ClusterCredentials | None = None
        """Of the mesh's own cluster, if it is secured: each service connects as a user of its own."""
        self._plan = plan
        self._journal = journal

    def all(self) -> Iterator[Instance]:
        """Every instance: the control plane, then the services in the order of the flow."""
        for service_instances in self.instances.values():
            yield from service_instances

    @property
    def ready(self) -> bool:
        """Whether every instance runs and is ready."""
        return all(instance.ready for instance in self.all())

    def reasons(self) -> list[str]:
        """One line for each instance that is not ready, with what it waits for."""
        lines = []
        for instance in self.all():
            if not instance.ready:
                reason = "; ".join(instance.readiness.waiting.values()) or instance.readiness.state
                lines.append(
                    f"  {instance.name}: {instance.misconfiguration or reason} (log: {instance.log})"
                )
        return lines

    async def start(self, *services: str) -> None:
        """Start the instances of these services that the plan has and that do not run yet."""
        for service in START_ORDER:
            if service in services:
                for _ in range(self._plan.instances(service) - len(self.instances[service])):
                    await self._add(service)

    async def scale(self, service: str, count: int, reason: str) -> None:
        """Set the number of instances of a service: start missing ones, drain and end the last ones.

        Raises:
            Misconfigured: unknown service, or too many instances.
            Retryable: instances would end while a deployment compares them.
        """
        if service not in FLOW or not 0 <= count <= MAX_INSTANCES:
            raise Misconfigured(
                f"{service}={count}: name one of {', '.join(FLOW)} and 0 to {MAX_INSTANCES} instances"
            )
        instances = self.instances[service]
        if count < len(instances) and len({instance.spec.release for instance in instances}) > 1:
            raise Retryable(f"a deployment of {service} runs: its instances have different releases")
        while len(instances) > count:
            await instances.pop().stop(STOP_GRACE_S)
        while len(instances) < count:
            await self._add(service)
        self._journal.add(
            "instances-changed",
            f"{service} has {count} instance(s) now" + (f": {reason}" if reason else ""),
            service=service,
            count=count,
        )

    async def set_release(self, name: str, release: str, reason: str) -> None:
        """Have an instance run a release: start it if there is none of this name, else drain and replace it.

        Nothing is done if it runs the release already.

        Raises:
            Misconfigured: no such service, too large a number, or the release has no such service.
        """
        service, number = _parsed(name)
        require_release(release, service)
        instances = self.instances[service]
        old_instance = next((instance for instance in instances if instance.spec.number == number), None)
        if old_instance is not None and old_instance.supervised and old_instance.spec.release == release:
            return
        if old_instance is None:
            await self._add(service, number, release)
        else:
            await old_instance.stop(STOP_GRACE_S)
            spec = replace(old_instance.spec, release=release)
            replacement = instances[instances.index(old_instance)] = self._instance(spec)
            await replacement.start()
        self._journal.add(
            "release-changed", f"{name} runs {release} now: {reason}", service=service, instance=name
        )

    async def remove(self, name: str, reason: str) -> None:
        """Drain and end an instance. Nothing is done if there is none of this name.

        Raises:
            Misconfigured: no such service.
        """
        service, number = _parsed(name)
        for instance in [
            candidate for candidate in self.instances[service] if candidate.spec.number == number
        ]:
            self.instances[service].remove(instance)
            await instance.stop(STOP_GRACE_S)
            self._journal.add(
                "instance-removed", f"{name} has ended: {reason}", service=service, instance=name
            )

    async def probe(self) -> None:
        """Ask every instance for its readiness."""
        await asyncio.gather(*(instance.probe() for instance in self.all()))

    async def stop(self, on_service: Callable[[str], None]) -> None:
        """Drain and end service by service, as `all` orders them; `on_service` is called with each name."""
        for service, instances in self.instances.items():
            if instances:
                on_service(service)
            await asyncio.gather(*(instance.stop(STOP_GRACE_S) for instance in instances))

    async def kill(self) -> None:
        """Kill all instances at once."""
        await asyncio.gather(*(instance.kill() for instance in self.all()))

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time so far by service, all its instances together, in seconds."""
        return {
            name: sum(instance.cpu_seconds() for instance in service_instances)
            for name, service_instances in self.instances.items()
            if service_instances
        }

    def rss_bytes(self) -> dict[str, int]:
        """Resident memory now by service, all its instances together."""
        return {
            name: sum(instance.rss_bytes() for instance in service_instances)
            for name, service_instances in self.instances.items()
            if service_instances
        }

    def executed(self) -> list[ExecutedInstance]:
        """Every instance as the executor reports it."""
        return [self._executed(instance) for instance in self.all()]

    def describe(self) -> list[RunningInstance]:
        """Every instance, including one that has just ended and is about to be started again."""
        return [_running_instance(instance) for instance in self.all() if instance.process.started]

    async def _add(self, service: str, number: int | None = None, release: str | None = None) -> None:
        used_ports = {
            self._plan.port,
            self._plan.console_port,
            self._plan.manage_port,
            *(instance.spec.port for instance in self.all()),
        }
        used_numbers = {instance.spec.number for instance in self.instances[service]}
        if number is None:
            number = next(
                candidate for candidate in range(1, MAX_INSTANCES + 2) if candidate not in used_numbers
            )
        if release is None:
            release = self.releases.get(service, INSTALLED)
        instance = self._instance(InstanceSpec(service, number, free_port(but=used_ports), release))
        self.instances[service].append(instance)
        try:
            await instance.start()
        except (HifiError, OSError):
            await instance.kill()
            self.instances[service].remove(instance)
            raise

    def _executed(self, instance: Instance) -> ExecutedInstance:
        spec = instance.spec
        return ExecutedInstance(
            spec.service,
            spec.name,
            spec.port,
            instance.cpu_seconds(),
            spec.release,
            instance.ready,
            instance.ready_after_s,
            instance.restarts,
            instance.rss_bytes(),
            instance_name(self._plan, spec),
        )

    def _instance(self, spec: InstanceSpec) -> Instance:
        return Instance(spec, self._process, self._journal, self._remove_group_members)

    def _process(self, spec: InstanceSpec) -> Process:
        return Process(
            spec.name,
            command_of(spec.release, command(spec.service)),
            log=self._plan.data / "logs" / f"{spec.name}.log",
            env=self._environment(spec),
            niceness=CONTROL_NICENESS if spec.service in CONTROL else 0,
        )

    def _environment(self, spec: InstanceSpec) -> dict[str, str]:
        variables = environment(
            self._plan, spec, self.bootstrap, self.java_home, self._security(spec.service)
        )
        variables |= self.executor if spec.service in CONTROL else {}
        return release_environment(spec.release, variables)

    def _security(self, service: str) -> KafkaSecurity | None:
        if self._plan.kafka is not None:
            return None
        if self.credentials is None:
            return KafkaSecurity()
        return self.credentials.security(user(self._plan.topics, service))

    async def _remove_group_members(self, spec: InstanceSpec) -> None:
        """Free the partitions of an instance whose processes have ended, before its next one joins the group.

        Only on the mesh's own Kafka, where the lock on the data folder makes names of instances unique. On a cluster
        that others use, an instance of the same name may be alive: there the session time-out decides.
        """
        if self._plan.kafka is not None:
            return
        client_id = self._environment(spec)["HIFI_INSTANCE"]
        try:
            removed_count = await remove_group_members(self.bootstrap, self._plan.stream, client_id)
        except Retryable as error:
            logger.warning("group-members-not-removed", instance=client_id, error=str(error))
        else:
            logger.info("group-members-removed", instance=client_id, members=removed_count)


def _parsed(name: str) -> tuple[str, int]:
    """Service and number of `normalize-2`."""
    service, _, number = name.rpartition("-")
    if service not in FLOW or not number.isdecimal() or not 1 <= int(number) <= MAX_INSTANCES:
        raise Misconfigured(
            f"{name}: name an instance of {', '.join(FLOW)} and a number up to {MAX_INSTANCES}, such as normalize-2"
        )
    return service, int(number)


def _running_instance(instance: Instance) -> RunningInstance:
    pid, spec = instance.process.pid, instance.spec
    return RunningInstance(
        service=spec.service,
        number=spec.number,
        pid=pid,
        created=running.created(pid) if instance.process.running else 0.0,
        port=spec.port,
        log=instance.log,
        release=spec.release,
    )
