"""Read a source in one instance at a time, of one colour or two: the one that a group has elected for it."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hifi.kafka.leader_election import LeaderElection
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.source import DeclaredSource
from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.kind import PolledSource, SourceTurn
from hifi.pipe.sources.loop_slices import loop_slices
from hifi.runtime import log
from hifi.runtime.backoff import backoff_s
from hifi.runtime.clock import monotonic_s, now_us
from hifi.runtime.errors import Fenced, Retryable
from hifi.runtime.lifetime import Lifetime
from hifi_collect.pace.source_pace import SourcePace
from hifi_collect.polled.entries import SourceEntries
from hifi_collect.polled.source_backlog import SourceBacklog
from hifi_collect.raw_writer import RawWriter
from hifi_collect.reader_run import new_run
from hifi_collect.settings import CollectSettings

_RETRY_S: Final = 1.0
_RETRIES_S: Final = (1.0, 1.0, 2.0, 5.0, 10.0)
"""Waits while a source does not answer, seconds."""
_FINISH_S: Final = 10.0
"""Bound on what is read and written when the reader has to end, seconds."""

logger = log.get(__name__)


class _ElectedTurn(SourceTurn):
    """What a source may do while this instance is the elected one."""

    def __init__(self, reader: "PolledReader", progress: SourceEntries) -> None:
        self._reader = reader
        self._progress = progress
        self._run = new_run()
        self._backlog = SourceBacklog(reader.pace.after_s if reader.by_age else None)
        self.worked = False
        """Whether the source has answered."""

    @property
    def entries(self) -> Mapping[str, Any]:
        """What is written down about the source, by name."""
        return self._progress.entries

    def over(self) -> bool:
        """Whether reading has to end: the service stops, the pipe has changed, or another instance was elected."""
        return self._reader.over.is_set()

    async def pause(self, seconds: float) -> None:
        """Wait, at most until the turn is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._reader.over.wait(), seconds)

    async def keep(self, entries: Mapping[str, Any]) -> None:
        """Write entries down."""
        await self._progress.keep(entries)

    async def write(
        self,
        partition: str,
        events: Sequence[SourceEvent],
        accepted_us: int,
        remaining: int | None = None,
    ) -> None:
        """Write a batch to `raw`; every event of every such source goes through here."""
        reader = self._reader
        pipe = reader.registry.get(reader.pipe)
        if pipe is None or pipe.pipe.source != reader.declared:
            raise Fenced("the pipe has another source now")
        paced = self._backlog.mark(events, remaining, now_us()) > 0
        left, pace, source, acknowledged = events, reader.pace, partition.encode(), []
        while left:
            part = next(pace.slices(left)) if paced else left
            if backfill := sum(event.backfill for event in part) if paced else 0:
                await self._turn_of(backfill)
            if self.over():
                part = left  # at once, so that whoever reads next has nothing to write again
            left = left[len(part) :]
            for events_slice in loop_slices(part):
                times = [accepted_us] * len(events_slice)
                begun = await reader.writer.begin(
                    pipe, events_slice, times, source, self._run, now_us(), at_once=True
                )
                acknowledged.append(begun)
                await asyncio.sleep(0)
            if backfill:
                await begun
        await asyncio.gather(*acknowledged)
        pace.progress.put(partition, self._backlog.offsets, monotonic_s())
        pace.progress.advance(partition, self._backlog.offsets.position, len(events), monotonic_s())

    async def _turn_of(self, events: int) -> None:
        """Wait for the rate of the source, at most until reading has to end."""
        waits = [
            asyncio.create_task(self._reader.pace.turn(events)),
            asyncio.create_task(self._reader.over.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in waits:
                waiting.cancel()
            await asyncio.wait(waits)

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
        """Read whenever this instance is the elected one, until the service stops.

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
                    self.pace.progress.keep(set())  # whoever is elected now tells of it
        finally:
            await self._election.stop()

    async def _read_until_over(self) -> None:
        reading = asyncio.create_task(self._read())
        ends = [
            asyncio.create_task(event.wait())
            for event in (self.lifetime.stopping, self._election.not_leading)
        ]
        try:
            await asyncio.wait({reading, *ends}, return_when=asyncio.FIRST_COMPLETED)
            self.over.set()
            await asyncio.wait({reading}, timeout=_FINISH_S)
        finally:
            self.over.set()
            for task in (reading, *ends):
                task.cancel()
            await asyncio.wait({reading, *ends})
        if not reading.cancelled():
            reading.result()

    async def _read(self) -> None:
        """Take over and read until the turn is over, however often the source does not answer."""
        progress = SourceEntries(self._settings, self.pipe, self._source.name)
        try:
            await progress.take_over()
            logger.info("source-taken-over", pipe=self.pipe, source=self._source.name)
            failures = 0
            while not self.over.is_set():
                turn = _ElectedTurn(self, progress)
                try:
                    await self._source.read(turn)
                except Retryable as error:
                    logger.warning("source-unreachable", pipe=self.pipe, error=str(error))
                    turn.warn("source", str(error))
                    failures = 0 if turn.worked else failures + 1
                    await turn.pause(backoff_s(failures, _RETRIES_S))
        finally:
            await progress.stop()
