"""Keeps the plan up to date with pipes and lookups."""

import asyncio
from collections.abc import Sequence
from typing import Final

from hifi.pipe.limit_check import refusals
from hifi.pipe.limits import pipe_limits
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import PipeRevision
from hifi.record.headers import Headers
from hifi.record.identity import identity
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import NotAnEvent
from hifi_enrich.poison.poisoned_pipes import MAX_POISON_RECORDS, PoisonedPipes
from hifi_enrich.query.engine import LoadedPipes, SparkEngine
from hifi_enrich.supervision.status import QueryStatus

_LOOKUP_RETRY_S: Final = 2.0
_BROKEN_RETRY_S: Final = 10.0
_CONDITION: Final = "plan"

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
        self._has_broken = False
        self.poisoned: Final = PoisonedPipes()
        """Counts of poison records; revisions with too many are quarantined with the next plan."""
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
            pipes = await self._engine.load_lookups()
            missing_reasons = {
                pipe: reason for pipe, reason in pipes.broken.items() if not self._is_refused(pipe)
            }
            if not missing_reasons or monotonic_s() >= end_s:
                await self._update_plan(pipes)
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
        """Bring the plan up to date. Returns whether it changed. Raises what Spark raises, with `changed` set again."""
        self.changed.clear()
        try:
            is_new = await self._update_plan(await self._engine.load_lookups())
        except BaseException as error:
            self.changed.set()
            if isinstance(error, Exception):
                reason = f"it is out of date, since it cannot be made: {type(error).__name__}: {error}"
                self._status.health.warn(_CONDITION, reason[:500])
            raise
        self._status.health.warn(_CONDITION, None)
        return is_new

    def count_poison(self, headers: Headers) -> bool:
        """Count a poison record against the revision that the plan takes for it. One that is no event has none.

        Returns:
            Whether the next plan is the first one that quarantines the revision.
        """
        try:
            event = identity(headers)
        except NotAnEvent:
            return False
        revision = self._registry.of_revision(event.pipe, event.revision)
        if revision is None:
            return False
        poison_records = self.poisoned.add(event.pipe, revision.offset)
        logger.error(
            "pipe-poisoned",
            pipe=event.pipe,
            revision=revision.number,
            offset=revision.offset,
            records=poison_records,
        )
        return poison_records == MAX_POISON_RECORDS

    async def _update_plan(self, pipes: LoadedPipes) -> bool:
        self._has_broken = bool(pipes.broken)
        quarantined = self._quarantined(pipes.revisions)
        for revision in self._registry.in_use():
            reason = quarantined.get(revision.key) or pipes.broken.get(revision.key)
            self._status.health.warn(f"pipe {revision.key}", reason)
        return await self._engine.update_plan(pipes, quarantined)

    def _quarantined(self, revisions: Sequence[PipeRevision]) -> dict[str, str]:
        """Key of each quarantined revision to the reason."""
        reason = (
            f"quarantined: Spark failed on {MAX_POISON_RECORDS} of its events, or took too long; publish the pipe again"
            " to release it"
        )
        return {
            revision.key: reason
            for revision in revisions
            if self.poisoned.is_quarantined(revision.pipe.pipe, revision.offset)
        }

    async def retry_broken(self) -> None:
        """Request an update of the plan every 10 s while a pipe is broken, until cancelled."""
        while True:
            await asyncio.sleep(_BROKEN_RETRY_S)
            if self._has_broken:
                self.notify()
