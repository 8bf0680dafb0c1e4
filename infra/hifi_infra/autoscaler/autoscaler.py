"""Keeps the groups of a mesh between their bounds: measures, asks `autoscale.decide`, scales."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from hifi import log
from hifi.errors import HifiError, Misconfigured
from hifi_infra.autoscaler.policy import Policy, Sample, decide
from hifi_infra.mesh.plan import MOST_INSTANCES

LOOK_S: Final = 5.0
SERVICES: Final = ("normalize", "egest", "retrier")
"""Groups that share partitions. Ingest has no lag, and further instances of enrich are standbys."""

logger = log.get(__name__)


class Instance(Protocol):
    """What is measured of an instance."""

    @property
    def name(self) -> str:
        """Its name, different from that of all others."""

    def cpu_seconds(self) -> float:
        """Used so far."""


class Mesh(Protocol):
    """What is scaled: see `hifi_infra.mesh.mesh.Mesh`."""

    @property
    def instances(self) -> Mapping[str, Sequence[Instance]]:
        """Service to its instances."""

    async def scale(self, service: str, count: int) -> None:
        """Have so many instances; returns when those that were too many have drained."""


Lag = Callable[[], Awaitable[Mapping[str, int]]]
"""Tells for each service how many records wait for it; raises HifiError where that is not known."""


class Autoscaler:
    """Looks at a mesh every few seconds until it is stopped."""

    def __init__(
        self,
        mesh: Mesh,
        policies: Mapping[str, Policy],
        lag: Lag,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mesh = mesh
        self._policies = policies
        self._lag = lag
        self._clock = clock
        self._cpu: dict[str, float] = {}
        self._looked_s = clock()
        self._stopping = asyncio.Event()
        self._history: dict[str, deque[Sample]] = {
            service: deque(maxlen=int((policy.up_after_s + policy.down_after_s) / LOOK_S) + 2)
            for service, policy in policies.items()
        }

    async def run(self) -> None:
        """Look, decide, scale, until `stop`; an instance that drains then is waited for."""
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), LOOK_S)
                return
            try:
                await self.look()
            except HifiError as error:  # an instance that cannot be started now may be later
                logger.warning("autoscale-failed", error=str(error))

    def stop(self) -> None:
        """Begin no further change."""
        self._stopping.set()

    async def look(self) -> None:
        """One round over all groups."""
        lag = await self._measure_lag()
        now = self._clock()
        for service, cpu in self._measure_cpu(now).items():
            count = len(self._mesh.instances[service])
            history = self._history[service]
            history.append(Sample(now, count, cpu, lag.get(service)))
            decision = decide(self._policies[service], list(history))
            if decision.instances != count:
                logger.info(
                    "autoscale", service=service, had=count, wanted=decision.instances, why=decision.why
                )
                await self._mesh.scale(service, decision.instances)

    async def _measure_lag(self) -> Mapping[str, int]:
        try:
            return await self._lag()
        except HifiError as error:
            logger.warning("autoscale-without-lag", error=str(error))
            return {}

    def _measure_cpu(self, now: float) -> dict[str, float | None]:
        """Average cores of the instances that were there at the last look too; None where there are none."""
        elapsed = now - self._looked_s
        before, self._cpu, self._looked_s = self._cpu, {}, now
        shares: dict[str, float | None] = {}
        for service in self._policies:
            used = {one.name: one.cpu_seconds() for one in self._mesh.instances[service]}
            self._cpu |= used
            grown = [(total - before[name]) / elapsed for name, total in used.items() if name in before]
            shares[service] = sum(grown) / len(grown) if grown and elapsed > 0 else None
        return shares


def read_autoscale(texts: Sequence[str]) -> dict[str, Policy]:
    """`["normalize=1-3"]` as policies.

    Raises:
        Misconfigured: no such service, or not bounds.
    """
    policies: dict[str, Policy] = {}
    for text in texts:
        service, _, bounds = text.partition("=")
        least, _, most = bounds.partition("-")
        if service not in SERVICES:
            raise Misconfigured(f"--autoscale {text}: name one of {', '.join(SERVICES)}, not {service!r}")
        if not (least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most) <= MOST_INSTANCES):
            raise Misconfigured(
                f"--autoscale {text}: write bounds, for example {service}=1-3, at most {MOST_INSTANCES}"
            )
        policies[service] = Policy(least=int(least), most=int(most))
    return policies
