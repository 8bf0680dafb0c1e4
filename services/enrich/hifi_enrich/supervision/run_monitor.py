"""Watches one run of the query: reports its finished batches, and stops it at the right moment."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from hifi.pipe.model import QueryTrigger
from hifi.runtime import metrics
from hifi.runtime.clock import monotonic_s, wait_at_most
from hifi_enrich.query.query_run import FinishedBatch, QueryRun

_POLL_S: Final[Mapping[QueryTrigger, float]] = {"micro-batch": 0.1, "real-time": 0.5}
"""Time between two polls of the query, by its trigger, seconds. Each poll is some calls into Java, which cost about a
millisecond; a real-time batch takes half a minute, a micro-batch a third of a second."""
_POLL_BEFORE_STOP_S: Final = 0.005


class StopReason(Enum):
    """Reasons to stop a run."""

    LEADERSHIP_LOST = "leadership-lost"
    """Stops at once; the other reasons wait for the end of a batch."""
    DRAIN = "drain"
    PLAN_CHANGED = "plan-changed"


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of a run."""

    error: str | None
    """The reason for its failure; None: it was stopped."""
    progressed: bool
    """Whether it finished at least one batch."""
    stalled: bool = False
    """Whether it was stopped because a batch did not end."""


class RunMonitor:
    """Watches one run."""

    def __init__(
        self,
        query: QueryRun,
        commit: Callable[[FinishedBatch], Awaitable[None]],
        timeouts_s: dict[StopReason, float],
        stall_s: float,
    ) -> None:
        """Watch a query that has just been started.

        Args:
            query: the run.
            commit: called with each finished batch, in order; of short batches some may be left out.
            timeouts_s: longest wait for the end of a batch before stopping, by reason, seconds.
            stall_s: time after which a batch that does not end is stopped, seconds.
        """
        self._query = query
        self._commit = commit
        self._timeouts_s = timeouts_s
        self._stall_s = stall_s
        self._last_progress_s = monotonic_s()
        self._stop_reason: StopReason | None = None
        self._requested_s = 0.0
        self._wake = asyncio.Event()
        self._progressed = False

    def request_stop(self, reason: StopReason) -> None:
        """Stop the run as soon as the reason allows. The loss of leadership overrides an earlier reason."""
        if self._stop_reason is None or reason is StopReason.LEADERSHIP_LOST:
            self._stop_reason, self._requested_s = reason, monotonic_s()
            self._wake.set()

    async def run(self) -> RunResult:
        """Watch until the run has failed or was stopped."""
        while True:
            finished_batch, is_active = await asyncio.to_thread(self._poll)
            await self._handle(finished_batch)
            if not is_active:
                error = await asyncio.to_thread(self._query.error)
                await self._stop()
                return RunResult(error or "the query ended without an error", self._progressed)
            if self._stop_reason is not None and await self._may_stop(finished_batch):
                await self._stop()
                return RunResult(None, self._progressed)
            if await self._stalled(finished_batch):
                await self._stop()
                error = f"a batch did not end within {self._stall_s:.0f} s"
                return RunResult(error, self._progressed, stalled=True)
            await self._pause()

    def _poll(self) -> tuple[FinishedBatch | None, bool]:
        is_active = self._query.active
        return self._query.finished_batch(), is_active

    async def _may_stop(self, finished_batch: FinishedBatch | None) -> bool:
        """Whether the run may stop now: right after the end of a batch, stopping repeats no record."""
        if (
            self._stop_reason is None
            or self._stop_reason is StopReason.LEADERSHIP_LOST
            or finished_batch is not None
        ):
            return True
        if monotonic_s() - self._requested_s >= self._timeouts_s[self._stop_reason]:
            return True
        return await asyncio.to_thread(lambda: self._query.idle)

    async def _stalled(self, finished_batch: FinishedBatch | None) -> bool:
        """Whether a batch has been running for too long."""
        now_s = monotonic_s()
        if finished_batch is not None:
            self._last_progress_s = now_s
        if now_s - self._last_progress_s < self._stall_s:
            return False
        if await asyncio.to_thread(lambda: self._query.idle):
            self._last_progress_s = now_s  # nothing to read
            return False
        return True

    async def _pause(self) -> None:
        if self._stop_reason is not None:
            await asyncio.sleep(_POLL_BEFORE_STOP_S)
            return
        await wait_at_most(self._wake, _POLL_S[self._query.trigger])

    async def _stop(self) -> None:
        await asyncio.to_thread(self._query.stop)
        await self._handle(await asyncio.to_thread(self._query.finished_batch))

    async def _handle(self, finished_batch: FinishedBatch | None) -> None:
        if finished_batch is None:
            return
        self._progressed = True
        metrics.BATCH_SECONDS.observe(finished_batch.duration_ms / 1000)
        if self._stop_reason is not StopReason.LEADERSHIP_LOST:
            await self._commit(finished_batch)
