"""The pace of one source, which the backfill of all its source partitions keeps."""

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from hifi.delivery.source_report import SourceReport
from hifi.pipe.sources.collected import Backfill
from hifi.pipe.sources.kind import NOTHING_HELD, Held
from hifi.runtime.clock import monotonic_s
from hifi.runtime.token_bucket import TokenBucket
from hifi_collect.pace.backfill_rate import BackfillRate
from hifi_collect.pace.progress import SourceProgress

T = TypeVar("T")

_SLICE_S: Final = 0.02
"""Events of this time are written at once: a longer burst delays events of other pipes behind it."""
_CHUNK_S: Final = 0.5
_LONGEST_WAIT_S: Final = 0.5
"""The rate may have changed meanwhile, seconds."""
_ACTIVE_S: Final = 5.0
"""Time without an event of a backfill after which it has ended, seconds."""


class SourcePace:
    """The rate at which one instance of collect may read one source, and its progress."""

    def __init__(self, backfill: Backfill, now_s: Callable[[], float] = monotonic_s) -> None:
        """No backfill has begun.

        Args:
            backfill: as the pipe declares it.
            now_s: the clock, monotonic, seconds.
        """
        self.after_s: Final = backfill.after
        self.rate: Final = BackfillRate(backfill.rate)
        self.progress: Final = SourceProgress()
        self.held: Callable[[], Held] = _nothing_held
        """The log that the source keeps for hifi."""
        self.notice: Callable[[], str] = str
        """A notice for operators about the rows of the source; empty: none."""
        self.share = 1.0
        """Share of the source that this instance reads."""
        self._now_s = now_s
        self._bucket_per_s = self.per_s
        self._bucket = TokenBucket(self.per_s, _SLICE_S)
        self._lock = asyncio.Lock()
        self._waiting_callers = 0
        self._last_write_s = -math.inf

    @property
    def per_s(self) -> float:
        """Events per second of the backfill that this instance may read now."""
        return self.rate.per_s * self.share

    @property
    def active(self) -> bool:
        """Whether a backfill is under way."""
        return self._waiting_callers > 0 or self._now_s() - self._last_write_s < _ACTIVE_S

    def chunks(self, batch: Sequence[T]) -> Iterator[Sequence[T]]:
        """Split a batch into chunks of half a second, so that each gets an accepted time of its own."""
        return self._split(batch, _CHUNK_S)

    def slices(self, events: Sequence[T]) -> Iterator[Sequence[T]]:
        """Split events into slices, before each of which `turn` is awaited."""
        return self._split(events, _SLICE_S)

    def _split(self, values: Sequence[T], seconds: float) -> Iterator[Sequence[T]]:
        start = 0
        while start < len(values):
            size = max(1, int(self.per_s * seconds))
            yield values[start : start + size]
            start += size

    async def turn(self, events: int) -> None:
        """Wait until this number of events of the backfill may be written. Callers are served in order."""
        if not self.active:
            self.rate.restart()
        self._waiting_callers += 1
        try:
            async with self._lock:
                while (wait_s := self._wait_s()) > 0:
                    await asyncio.sleep(min(wait_s, _LONGEST_WAIT_S))
                self._last_write_s = self._now_s()
                self._bucket.take(self._last_write_s, events)
        finally:
            self._waiting_callers -= 1

    def _wait_s(self) -> float:
        if (
            self.per_s != self._bucket_per_s
        ):  # only then: a change of the rate shortens what has to be waited for
            self._bucket_per_s = self.per_s
            self._bucket.set_rate(self.per_s)
        return self._bucket.wait_s(self._now_s())

    def report(self) -> SourceReport:
        """The progress, for the ack report."""
        active, progress = self.active, self.progress
        held_log = self.held()
        return SourceReport(
            backfill=active,
            done=progress.done(),
            remaining=progress.remaining(),
            read_per_s=round(progress.read_per_s(self._now_s()), 1),
            arriving_per_s=round(progress.arriving_per_s(), 1),
            limit_per_s=round(self.per_s, 1),
            late=self.rate.late if active else "",
            held_bytes=held_log.bytes,
            held=held_log.excess,
            notice=self.notice(),
        )


def _nothing_held() -> Held:
    return NOTHING_HELD
