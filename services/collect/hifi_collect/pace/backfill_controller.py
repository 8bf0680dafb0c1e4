"""The paces of all sources; while any backfill is under way, they follow the lag of the mesh."""

import asyncio
import contextlib
import math
from collections.abc import Iterator
from typing import Final

from hifi.delivery.source_report import SourceReport, seconds_left
from hifi.delivery.stage_monitor import StageMonitor, StageReadings
from hifi.kafka.fetch_interval import FETCH_INTERVAL
from hifi.pipe.sources.collected import Backfill
from hifi.runtime import log, metrics
from hifi_collect.pace.backfill_rate import CPU
from hifi_collect.pace.source_pace import SourcePace
from hifi_collect.settings import CollectSettings

_LOOK_S: Final = 0.5
"""Time between two readings of the mesh, seconds."""
_SCARCE_S: Final = 0.03
"""Fetch interval from which CPU time is scarce on this machine: the hops of the mesh take longer by as much."""
_EGEST_BOUND_S: Final = 5.0
"""Egest's least bound, seconds: its committed offsets wait for the slowest request of a destination."""
_GAUGES: Final = (
    metrics.SOURCE_READ,
    metrics.SOURCE_REMAINING,
    metrics.SOURCE_LEFT,
    metrics.BACKFILL_LIMIT,
    metrics.SOURCE_HELD,
)

logger = log.get(__name__)


class BackfillController:
    """One pace for each source that is read."""

    def __init__(self, settings: CollectSettings, partitions: int) -> None:
        """No source is read.

        Args:
            settings: of the service.
            partitions: of the stream's event topics.
        """
        self._settings = settings
        self._partitions = partitions
        self._paces: dict[str, SourcePace] = {}

    @contextlib.contextmanager
    def source_pace(self, pipe: str, backfill: Backfill) -> Iterator[SourcePace]:
        """The pace of a source while it is read.

        Args:
            pipe: name.
            backfill: as the pipe declares it.
        """
        pace = self._paces[pipe] = SourcePace(backfill)
        try:
            yield pace
        finally:
            del self._paces[pipe]
            for gauge in _GAUGES:
                with contextlib.suppress(KeyError):
                    gauge.remove(pipe)

    def reports(self) -> dict[str, SourceReport]:
        """Pipe to the progress of its source, for the ack reports; also sets the metrics."""
        reports = {pipe: pace.report() for pipe, pace in self._paces.items()}
        for pipe, report in reports.items():
            remaining_s = seconds_left(report)
            metrics.SOURCE_READ.labels(pipe).set(report["done"])
            metrics.SOURCE_REMAINING.labels(pipe).set(report["remaining"])
            metrics.SOURCE_LEFT.labels(pipe).set(math.nan if remaining_s is None else remaining_s)
            metrics.BACKFILL_LIMIT.labels(pipe).set(report["limit_per_s"])
            metrics.SOURCE_HELD.labels(pipe).set(report["held_bytes"])
        return reports

    async def run(self) -> None:
        """Watch the mesh while any backfill is under way, until cancelled."""
        watch_task: asyncio.Task[None] | None = None
        try:
            while True:
                if any(pace.active for pace in self._paces.values()):
                    if watch_task is None or watch_task.done():
                        watch_task = asyncio.create_task(self._watch())
                elif watch_task is not None:
                    await _cancel(watch_task)
                    watch_task = None
                await asyncio.sleep(_LOOK_S)
        finally:
            if watch_task is not None:
                await _cancel(watch_task)

    async def _watch(self) -> None:
        settings, bound_s = self._settings, self._settings.collect_backfill_lag_s
        egest_bound_s = max(bound_s, _EGEST_BOUND_S)
        monitor = StageMonitor(
            settings.kafka, settings.instance, settings.topics, self._partitions, bound_s, egest_bound_s
        )
        try:
            await monitor.run(self._adjust, lambda: None)
        except Exception:
            logger.exception("mesh-unwatched")

    def _adjust(self, readings: StageReadings) -> float:
        """Set the rates of all backfills; returns the time until the next reading, seconds."""
        late_stages = [stage for stage in readings.stages if stage.lag_s > stage.bound_s]
        cpu_cause = CPU if FETCH_INTERVAL.seconds > _SCARCE_S else ""
        late_stage = max(late_stages, key=lambda stage: stage.lag_s).service if late_stages else cpu_cause
        for pace in self._paces.values():
            if pace.active:
                pace.rate.update(late_stage)
        return _LOOK_S


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
