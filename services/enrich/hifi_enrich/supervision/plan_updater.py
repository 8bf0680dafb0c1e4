"""Keeps the plan up to date with pipes and lookups."""

import asyncio
from typing import Final

from hifi.pipe.limit_check import refusals
from hifi.pipe.limits import pipe_limits
from hifi.pipe.registry import PipeRegistry
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s
from hifi_enrich.poison.poisoned_pipes import MAX_POISON_RECORDS, PoisonedPipes
from hifi_enrich.query.engine import SparkEngine
from hifi_enrich.supervision.status import QueryStatus

_LOOKUP_RETRY_S: Final = 2.0
_BROKEN_RETRY_S: Final = 10.0

logger = log.get(__name__)


class PlanUpdater:
    """Makes a new plan when pipes or lookups have changed."""

    def __init__(
        self, registry: PipeRegistry, engine: SparkEngine, status: QueryStatus, lookup_wait_s: float
    ) -> None:
        """Make no plan before `make_first`.

        Args:
            registry: of the pipes.
            engine: that runs the plan.
            status: of the service.
            lookup_wait_s: longest wait at start for lookups that cannot be read, seconds.
        """
        self._lookup_wait_s = lookup_wait_s
        self._registry = registry
        self._engine = engine
        self._status = status
        self._broken: dict[str, str] = {}
        self.poisoned: Final = PoisonedPipes()
        """Counts of poison records; pipes with too many are quarantined with the next plan."""
        self.changed = asyncio.Event()
        """Set when the plan may be out of date."""
        registry.on_change(self.notify)

    def notify(self) -> None:
        """Pipes or lookups have changed."""
        self.changed.set()

    async def make_first(self) -> bool:
        """Make the first plan as soon as every permitted lookup can be read, or the wait for them is over.

        Without an earlier copy of its lookups a pipe would turn its backlog into dead letters; but the other pipes
        cannot wait for ever. A pipe that names a secret or file without permission is broken at once.

        Returns:
            False when the service is to stop instead.
        """
        end_s = monotonic_s() + self._lookup_wait_s
        while not self._status.stopping.is_set():
            self.changed.clear()
            self._broken = await self._engine.load_lookups()
            missing_reasons = {
                pipe: reason for pipe, reason in self._broken.items() if not self._is_refused(pipe)
            }
            if not missing_reasons or monotonic_s() >= end_s:
                await self._update_plan()
                return not self._status.stopping.is_set()
            pipe, reason = next(iter(missing_reasons.items()))
            self._status.waiting(f"the pipe {pipe} cannot run: {reason}")
            logger.error("lookups-missing", broken=missing_reasons)
            await self._status.wait_for_any(self.changed, timeout_s=_LOOKUP_RETRY_S)
        return False

    def _is_refused(self, key: str) -> bool:
        """Whether a revision names a secret or a lookup file without permission."""
        revision = next((revision for revision in self._registry.in_use() if revision.key == key), None)
        return revision is not None and any(refusals(revision.pipe, pipe_limits()))

    async def update(self) -> bool:
        """Bring the plan up to date. Returns whether it changed."""
        self.changed.clear()
        self._broken = await self._engine.load_lookups()
        return await self._update_plan()

    async def _update_plan(self) -> bool:
        quarantined = self._quarantined()
        for revision in self._registry.in_use():
            reason = quarantined.get(revision.key) or self._broken.get(revision.key)
            self._status.health.warn(f"pipe {revision.key}", reason)
        return await self._engine.update_plan(self._broken, quarantined)

    def _quarantined(self) -> dict[str, str]:
        """Key of each quarantined revision to the reason."""
        reason = (
            f"quarantined: Spark failed on {MAX_POISON_RECORDS} of its events, or took too long; publish the pipe again"
            " to release it"
        )
        return {
            revision.key: reason
            for revision in self._registry.in_use()
            if self.poisoned.is_quarantined(revision.pipe.pipe, revision.offset)
        }

    async def retry_broken(self) -> None:
        """Request an update of the plan every 10 s while a pipe is broken, until cancelled."""
        while True:
            await asyncio.sleep(_BROKEN_RETRY_S)
            if self._broken:
                self.notify()
