"""Publish merged minutes and the momentary figures of this instance's partition numbers, at an interval."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi_observe import metrics
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.live import figures
from hifi_observe.minutes.availability import SloLimits
from hifi_observe.minutes.merger import MinuteMerger, Records
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.open_minute import OpenMinuteReporter
from hifi_observe.pipes import ObservedPipes

_LAG_INTERVALS: Final = 15
"""Publications of momentary figures whose lags are merged, so that a p95 has enough values."""
_LONGEST_MERGE_INTERVAL_S: Final = 1.0

logger = log.get(__name__)


async def publish_minutes(
    merger: MinuteMerger,
    store: MinuteStore,
    pipes: ObservedPipes,
    partitions: ObservedPartitions,
    publisher: Publisher,
    interval_s: float,
) -> None:
    """Merge and publish the minutes of the pipes that this instance owns, until cancelled.

    What cannot be merged or published of a pipe is tried again the next time, and keeps no other pipe waiting.
    """
    unpublished: dict[str, Records] = {}
    """Pipe to records that the store has, but not Kafka."""
    while True:
        # Deleted pipes, too, until nothing of them is kept.
        kept_pipes = {
            *pipes.names(),
            *(pipe for kept in store.kept() for pipe, minutes in kept.items() if minutes),
        }
        owned_pipes = merger.owned(sorted(kept_pipes), partitions.numbers)
        for pipe in unpublished.keys() - set(owned_pipes):
            del unpublished[pipe]  # its owner publishes newer ones
        for pipe in owned_pipes:
            if not partitions.held:
                break  # another instance may own it by now
            try:
                unpublished[pipe] = [*unpublished.get(pipe, []), *store.take_overtaken(pipe)]
                unpublished[pipe] += merger.merge(pipe)
                if unpublished[pipe]:
                    await publisher.pipe(pipe, unpublished[pipe])
                del unpublished[pipe]
            except Exception:
                logger.exception("minutes-not-published", pipe=pipe)
            while merger.unreadable:
                key, reason = merger.unreadable.popitem()
                logger.error("record-unreadable", key=key.decode(), error=reason)
            for minute, reason in merger.unmerged.items():
                logger.error("minute-not-merged", pipe=pipe, minute=minute, error=reason)
            merger.unmerged.clear()
        await asyncio.sleep(min(_LONGEST_MERGE_INTERVAL_S, interval_s))


@dataclass(frozen=True, slots=True)
class _LedgerFigures:
    """Figures of earlier publications of a ledger that the next one needs."""

    ledger: PartitionLedger
    window: figures.LagWindow
    reporter: OpenMinuteReporter


class FiguresPublication:
    """Publishes the momentary figures and the open minutes of each partition number.

    Args:
        pipes: of the stream.
        partitions: that this instance observes.
        publisher: of figures.
        steps: returns what is proven of steps on a partition; see `StepAccounting.published`.
    """

    def __init__(
        self,
        pipes: ObservedPipes,
        partitions: ObservedPartitions,
        publisher: Publisher,
        steps: Callable[[int], dict[str, Any]] = lambda _: {},
    ) -> None:
        self._pipes = pipes
        self._steps = steps
        self._partitions = partitions
        self._publisher = publisher
        self._figures: dict[int, _LedgerFigures] = {}
        """Partition number to the figures of its ledger."""

    async def run(self, interval_s: float) -> None:
        """Publish until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            limits, with_rollout = self._pipes.limits(), self._pipes.with_rollout()
            ledgers = dict(self._partitions.ledgers)
            # A partition that was taken away and came back has another ledger.
            self._figures = {
                partition: ledger_figures
                for partition, ledger_figures in self._figures.items()
                if ledger_figures.ledger is ledgers.get(partition)
            }
            for partition, ledger in ledgers.items():
                await self._publish(partition, ledger, limits, with_rollout)

    async def _publish(
        self,
        partition: int,
        ledger: PartitionLedger,
        limits: Mapping[str, SloLimits],
        with_rollout: list[str],
    ) -> None:
        ledger_figures = self._figures.get(partition)
        if ledger_figures is None:
            ledger_figures = self._figures[partition] = _LedgerFigures(
                ledger, figures.LagWindow(_LAG_INTERVALS), OpenMinuteReporter()
            )
        lags = ledger.live.take_lags()
        figures.count_late(ledger, lags, limits)
        figures_json = figures.of_ledger(ledger, now_us(), ledger_figures.window.put(lags), with_rollout)
        if steps := self._steps(partition):
            figures_json["steps"] = steps
        await self._publisher.live(partition, figures_json)
        if rows := ledger_figures.reporter.report(ledger.pipe_minutes.values()):
            await self._publisher.open_minutes(partition, rows)
        metrics.PIPE_MINUTES.labels(str(partition)).set(len(ledger.pipe_minutes))
