"""Scales the services of a mesh: measures CPU and backlog, decides with `policy.decide`, starts and stops instances."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from hifi.runtime import log
from hifi.runtime.clock import wait_at_most
from hifi.runtime.errors import HifiError, Misconfigured
from hifi_infra.autoscaler.policy import Decision, Policy, Sample, decide
from hifi_infra.mesh.plan import MAX_INSTANCES

MEASURE_S: Final = 5.0
SERVICES: Final = ("normalize", "egest", "retrier")
"""Services whose instances share partitions. Ingest has no backlog, and more instances of enrich are standbys."""

logger = log.get(__name__)


class MeasuredInstance(Protocol):
    """Interface of an instance for the autoscaler."""

    @property
    def name(self) -> str:
        """Name of the instance, unique in the mesh."""

    def cpu_seconds(self) -> float:
        """CPU time so far, in seconds."""


class ScalableMesh(Protocol):
    """Interface of a mesh for the autoscaler: see `hifi_infra.mesh.mesh.Mesh`."""

    @property
    def instances(self) -> Mapping[str, Sequence[MeasuredInstance]]:
        """Service to its instances."""

    async def scale(self, service: str, count: int, reason: str) -> None:
        """Set the number of instances; returns once surplus ones have drained."""


ReadOccupancy = Callable[[], Awaitable[Mapping[str, float]]]
"""Returns service to the share of its lanes' requests that are in flight; services without lanes are left out."""
ReadBacklog = Callable[[], Awaitable[Mapping[str, int]]]
"""Returns service to records that it could process now; raises HifiError when that is unknown."""


class Autoscaler:
    """Measures and scales a mesh every `MEASURE_S` seconds until it is stopped.

    Args:
        mesh: what is scaled.
        policies: service to its policy.
        read_backlog: as `hifi_infra.kafka.backlog.due_backlog`.
        read_occupancy: of the lanes.
        clock: monotonic, seconds.
    """

    def __init__(
        self,
        mesh: ScalableMesh,
        policies: Mapping[str, Policy],
        read_backlog: ReadBacklog,
        read_occupancy: ReadOccupancy,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mesh = mesh
        self._policies = policies
        self._read_backlog = read_backlog
        self._read_occupancy = read_occupancy
        self._clock = clock
        self._cpu: dict[str, float] = {}
        self._measured_s = clock()
        self._stopping = asyncio.Event()
        self._history: dict[str, deque[Sample]] = {
            service: deque(maxlen=int((policy.up_after_s + policy.down_after_s) / MEASURE_S) + 2)
            for service, policy in policies.items()
        }

    async def run(self) -> None:
        """Measure, decide and scale until `stop`; returns once a draining instance has ended."""
        while not self._stopping.is_set():
            if await wait_at_most(self._stopping, MEASURE_S):
                return
            try:
                await self.adjust()
            except HifiError as error:  # an instance that cannot start now may start later
                logger.warning("autoscaling-failed", error=str(error))

    def stop(self) -> None:
        """Start no further change."""
        self._stopping.set()

    async def adjust(self) -> None:
        """Measure, decide and scale all services once; without a policy there is nothing to measure for.

        Raises:
            Misconfigured: the mesh refuses every change.
            HifiError: a change is not possible now. The changes of the other services were made.
        """
        if not self._policies:
            return
        backlog = await self._measure_backlog()
        occupancy = await self._read_occupancy()
        now_s = self._clock()
        changes: list[tuple[str, int, Decision]] = []
        for service, cpu in self._measure_cpu(now_s).items():
            count = len(self._mesh.instances.get(service, ()))
            history = self._history[service]
            history.append(Sample(now_s, count, cpu, backlog.get(service), occupancy.get(service)))
            decision = decide(self._policies[service], list(history))
            if decision.instances != count:
                changes.append((service, count, decision))
        await self._make(changes)

    async def _make(self, changes: Sequence[tuple[str, int, Decision]]) -> None:
        """Change services (name, instances before, decision), first those that grow: to shrink may have to wait."""
        errors: list[HifiError] = []
        for service, count, decision in sorted(changes, key=lambda change: change[2].instances < change[1]):
            try:
                await self._mesh.scale(service, decision.instances, decision.reason)
            except Misconfigured:
                raise
            except HifiError as error:
                errors.append(error)
                continue
            logger.info(
                "service-scaled",
                service=service,
                instances_before=count,
                instances=decision.instances,
                reason=decision.reason,
            )
        if errors:
            raise errors[0]

    async def _measure_backlog(self) -> Mapping[str, int]:
        try:
            return await self._read_backlog()
        except HifiError as error:
            logger.warning("backlog-unknown", error=str(error))
            return {}

    def _measure_cpu(self, now_s: float) -> dict[str, float | None]:
        """Average cores of the instances that ran at the last measurement too; None without any."""
        elapsed_s = now_s - self._measured_s
        cpu_before_s, self._cpu, self._measured_s = self._cpu, {}, now_s
        shares: dict[str, float | None] = {}
        for service in self._policies:
            cpu_s = {
                instance.name: instance.cpu_seconds() for instance in self._mesh.instances.get(service, ())
            }
            self._cpu |= cpu_s
            increases = [
                (total - cpu_before_s[name]) / elapsed_s
                for name, total in cpu_s.items()
                if name in cpu_before_s
            ]
            shares[service] = sum(increases) / len(increases) if increases and elapsed_s > 0 else None
        return shares


def read_autoscale(texts: Sequence[str]) -> dict[str, Policy]:
    """`["normalize=1-3"]` as policies.

    Raises:
        Misconfigured: unknown service, or wrong bounds.
    """
    policies: dict[str, Policy] = {}
    for text in texts:
        service, _, bounds = text.partition("=")
        lowest, _, highest = bounds.partition("-")
        if service not in SERVICES:
            raise Misconfigured(f"--autoscale {text}: name one of {', '.join(SERVICES)}, not {service!r}")
        if not (
            lowest.isdecimal() and highest.isdecimal() and 1 <= int(lowest) <= int(highest) <= MAX_INSTANCES
        ):
            raise Misconfigured(
                f"--autoscale {text}: write bounds, for example {service}=1-3, at most {MAX_INSTANCES}"
            )
        policies[service] = Policy(
            min_instances=int(lowest), max_instances=int(highest), has_lanes=service == "egest"
        )
    return policies
