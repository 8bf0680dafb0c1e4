"""Read a source in one instance at a time, of one colour or two: the one that a group has elected for it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hifi.delivery.raw_writer import RawWriter
from hifi.delivery.reader_run import new_run
from hifi.kafka.leader_election import LeaderElection
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.source import DeclaredSource
from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.kind import PolledSource, SourceTurn
from hifi.pipe.sources.loop_slices import loop_slices
from hifi.runtime import log
from hifi.runtime.backoff import backoff_s
from hifi.runtime.clock import monotonic_s, now_us, wait_at_most
from hifi.runtime.errors import Fenced, Retryable
from hifi.runtime.lifetime import Lifetime
from hifi_collect.pace.source_pace import SourcePace
from hifi_collect.polled.entries import SourceEntries
from hifi_collect.polled.source_backlog import SourceBacklog
from hifi_collect.settings import CollectSettings

_RETRY_S: Final = 1.0
_RETRIES_S: Final = (1.0, 1.0, 2.0, 5.0, 10.0)
"""Waits while a source does not answer, seconds."""
_FINISH_S: Final = 10.0
"""Time to read and write the last events when the reader has to end, seconds."""

logger = log.get(__name__)


class _ElectedTurn(SourceTurn):
    """The access of a source to its progress and to `raw` while this instance is elected."""

    def __init__(self, reader: "PolledReader", progress: SourceEntries) -> None:
        self._reader = reader
        self._progress = progress
        self._reader_run = new_run()
        self._backlog = SourceBacklog(reader.pace.after_s if reader.by_age else None)
        self.worked = False
        """Whether the source has answered."""

    @property
    def entries(self) -> Mapping[str, Any]:
        """The entries of the source, by name."""
        return self._progress.entries

    def over(self) -> bool:
        """Whether reading has to end: the service stops, the pipe has changed, or another instance was elected."""
        return self._reader.over.is_set()

    async def pause(self, seconds: float) -> None:
        """Wait, at most until the turn is over."""
        await wait_at_most(self._reader.over, seconds)

    async def keep(self, entries: Mapping[str, Any]) -> None:
        """Write entries."""
        await self._progress.keep(entries)

    async def write(
        self,
        partition: str,
        events: Sequence[SourceEvent],
        accepted_us: int,
        remaining: int | None = None,
    ) -> None:
        """Write events to `raw`; polled sources write all of their events with this method."""
        reader = self._reader
        pipe = reader.registry.get(reader.pipe)
        if pipe is None or pipe.pipe.source != reader.declared:
            raise Fenced("the pipe has another source now")
        is_paced = self._backlog.mark(events, remaining, now_us()) > 0
        remaining_events, pace, source, acknowledgements = events, reader.pace, partition.encode(), []
        while remaining_events:
            batch = next(pace.slices(remaining_events)) if is_paced else remaining_events
            if backfill_count := sum(event.backfill for event in batch) if is_paced else 0:
                await self._wait_for_rate(backfill_count)
            if self.over():
                batch = remaining_events  # at once, so that the next reader has nothing to write again
            remaining_events = remaining_events[len(batch) :]
            for events_slice in loop_slices(batch):
                accepted_times_us = [accepted_us] * len(events_slice)
                acknowledgement = await reader.writer.begin(
                    pipe, events_slice, accepted_times_us, source, self._reader_run, now_us(), at_once=True
                )
                acknowledgements.append(acknowledgement)
                await asyncio.sleep(0)
            if backfill_count:
                await acknowledgement
        await asyncio.gather(*acknowledgements)
        pace.progress.put(partition, self._backlog.offsets, monotonic_s())
        pace.progress.advance(partition, self._backlog.offsets.position, len(events), monotonic_s())

    async def _wait_for_rate(self, events: int) -> None:
        """Wait for the rate of the source, at most until reading has to end."""
        wait_tasks = [
            asyncio.create_task(self._reader.pace.turn(events)),
            asyncio.create_task(self._reader.over.wait()),
        ]
        try:
            await asyncio.wait(wait_tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait_task in wait_tasks:
                wait_task.cancel()
            await asyncio.wait(wait_tasks)

    def warn(self, subject: str, reason: str | None) -> None:
        """Show a warning about a subject; None removes it."""
        self._reader.lifetime.health.warn(subject, reason)

    def works(self) -> None:
        """The source answers."""
        self.worked = True
        self.warn("source", None)


class PolledReader:
    """Reads the source of one pipe until the service stops."""

    def __init__(
        self,
        lifetime: Lifetime,
        settings: CollectSettings,
        pipe: str,
        declared: DeclaredSource,
        source: PolledSource,
        registry: PipeRegistry,
        writer: RawWriter,
        pace: SourcePace,
    ) -> None:
        """Nothing is read before `run`.

        Args:
            lifetime: ends the reader, and shows its conditions.
            settings: of the service.
            pipe: name.
            declared: the source as the pipe declares it.
            source: reads it.
            registry: has the pipe.
            writer: to `raw`.
            pace: of the source.
        """
        self.lifetime = lifetime
        self.pipe = pipe
        self.declared = declared
        self.registry = registry
        self.writer = writer
        self.pace = pace
        self.by_age = source.by_age
        self.over = asyncio.Event()
        """Set when reading has to end."""
        self._settings = settings.model_copy(update={"kafka": settings.progress_kafka})
        self._source = source
        topics = settings.topics
        self._election = LeaderElection(
            self._settings, topics.group(f"collect-source.{pipe}"), topics.collect_leader
        )

    async def run(self) -> None:
        """Read while this instance is elected, until the service stops.

        Raises:
            Misconfigured: the settings of the source cannot be used.
        """
        self._election.start()
        try:
            while await self.lifetime.unless_stopped(self._election.leading.wait()):
                if self.lifetime.stopping.is_set():
                    break
                self.over.clear()
                self._election.query_stopped.clear()
                try:
                    await self._read_until_over()
                except Fenced as error:
                    logger.warning("source-turn-ended", pipe=self.pipe, error=str(error))
                    await self.lifetime.sleep(_RETRY_S)
                finally:
                    self._election.query_stopped.set()
                    self.pace.progress.keep(set())  # the instance that is elected now reports it
        finally:
            await self._election.stop()

    async def _read_until_over(self) -> None:
        read_task = asyncio.create_task(self._read())
        end_tasks = [
            asyncio.create_task(event.wait())
            for event in (self.lifetime.stopping, self._election.not_leading)
        ]
        try:
            await asyncio.wait({read_task, *end_tasks}, return_when=asyncio.FIRST_COMPLETED)
            self.over.set()
            await asyncio.wait({read_task}, timeout=_FINISH_S)
        finally:
            self.over.set()
            for task in (read_task, *end_tasks):
                task.cancel()
            await asyncio.wait({read_task, *end_tasks})
        if not read_task.cancelled():
            read_task.result()

    async def _read(self) -> None:
        """Take over and read until the turn is over; a source that does not answer is tried again."""
        progress = SourceEntries(self._settings, self.pipe, self._source.name)
        try:
            await progress.take_over()
            logger.info("source-taken-over", pipe=self.pipe, source=self._source.name)
            failures = 0
            while not self.over.is_set():
                source_turn = _ElectedTurn(self, progress)
                try:
                    await self._source.read(source_turn)
                except Retryable as error:
                    logger.warning("source-unreachable", pipe=self.pipe, error=str(error))
                    source_turn.warn("source", str(error))
                    failures = 0 if source_turn.worked else failures + 1
                    await source_turn.pause(backoff_s(failures, _RETRIES_S))
        finally:
            await progress.stop()
