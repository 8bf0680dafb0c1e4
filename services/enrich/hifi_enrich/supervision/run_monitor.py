"""Watching one run of the query: committing what it finished, and ending it at the right moment."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from hifi import metrics
from hifi.clock import monotonic_s
from hifi_enrich.query import Done, Query

_LOOK_S: Final = 0.1
_LOOK_CLOSELY_S: Final = 0.005


class Ending(Enum):
    """Why a run has to end."""

    LOST = "leadership-lost"
    """At once."""
    DRAIN = "drain"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended."""

    error: str | None
    """Why it died; None: it was stopped."""
    progressed: bool
    """It finished at least one batch."""


class Watch:
    """One run."""

    def __init__(
        self, query: Query, commit: Callable[[Done], Awaitable[None]], bounds_s: dict[Ending, float]
    ) -> None:
        """Watch a query that was just started.

        Args:
            query: the run.
            commit: told of each finished batch, in order; some may be left out when batches are short.
            bounds_s: how long to wait for a batch's end, by ending, seconds.
        """
        self._query = query
        self._commit = commit
        self._bounds_s = bounds_s
        self._ending: Ending | None = None
        self._asked_s = 0.0
        self._wake = asyncio.Event()
        self._progressed = False

    def end(self, ending: Ending) -> None:
        """Ask it to end. A more urgent ending overrides."""
        if self._ending is None or ending is Ending.LOST:
            self._ending, self._asked_s = ending, monotonic_s()
            self._wake.set()

    async def run(self) -> Ended:
        """Watch until it died or was ended."""
        while True:
            finished, alive = await asyncio.to_thread(self._look)
            await self._note(finished)
            if not alive:
                error = await asyncio.to_thread(self._query.error)
                await self._stop()
                return Ended(error or "the query ended by itself", self._progressed)
            if self._ending is not None and await self._may_stop(finished):
                await self._stop()
                return Ended(None, self._progressed)
            await self._pause()

    def _look(self) -> tuple[Done | None, bool]:
        alive = self._query.alive
        return self._query.done(), alive

    async def _may_stop(self, finished: Done | None) -> bool:
        """Stopped right after a batch's end, nothing is done twice."""
        if self._ending is None or self._ending is Ending.LOST or finished is not None:
            return True
        if monotonic_s() - self._asked_s >= self._bounds_s[self._ending]:
            return True
        return await asyncio.to_thread(lambda: self._query.idle)

    async def _pause(self) -> None:
        if self._ending is not None:
            await asyncio.sleep(_LOOK_CLOSELY_S)
            return
        try:
            await asyncio.wait_for(self._wake.wait(), _LOOK_S)
        except TimeoutError:
            return

    async def _stop(self) -> None:
        await asyncio.to_thread(self._query.stop)
        await self._note(await asyncio.to_thread(self._query.done))

    async def _note(self, finished: Done | None) -> None:
        if finished is None:
            return
        self._progressed = True
        metrics.BATCH_SECONDS.observe(finished.duration_ms / 1000)
        if self._ending is not Ending.LOST:
            await self._commit(finished)
