"""Keep one reader for each published pipe with a source of its own, as the pipes change."""

import asyncio
from typing import Final

from hifi.delivery.raw_writer import RawWriter
from hifi.kafka.clients import connect
from hifi.kafka.topic_identity import TopicIdentity, topic_identity
from hifi.pipe.limit_check import require_none, source_refusals
from hifi.pipe.limits import pipe_limits
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.source import installed_source_kind
from hifi.pipe.sources.collected import CollectedSource
from hifi.pipe.sources.kind import PolledSource, SourceContext, TopicEvents
from hifi.pipe.sources.step import StepSource
from hifi.pipe.sources.topic import TopicSource
from hifi.pipe.sources.written_topics import topic_refusal
from hifi.runtime import log
from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.health import Health
from hifi.runtime.lifetime import Lifetime
from hifi_collect.pace.backfill_controller import BackfillController
from hifi_collect.polled.reader import PolledReader
from hifi_collect.settings import CollectSettings
from hifi_collect.source_colour import SourceColour
from hifi_collect.topic.topic_reader import KafkaTopicReader

logger = log.get(__name__)

_CONNECT_S: Final = 1.0


class _ReaderHealth(Health):
    """Conditions of one reader as warnings of the service: a source that is away makes no other source unready."""

    def __init__(self, health: Health, pipe: str) -> None:
        super().__init__(health.service, health.instance)
        self._health = health
        self._pipe = pipe
        self._subjects: set[str] = set()

    def block(self, condition: str, reason: str) -> None:
        """Show a condition that is not met."""
        self.warn(condition, reason)

    def unblock(self, condition: str) -> None:
        """The condition is met (again)."""
        self.warn(condition, None)

    def warn(self, subject: str, reason: str | None) -> None:
        """Show a warning about a subject; None removes it."""
        self._subjects.add(subject)
        self._health.warn(f"source of {self._pipe}: {subject}", reason)

    def clear(self) -> None:
        """Remove all warnings: the reader has ended."""
        for subject in self._subjects:
            self.warn(subject, None)


class _RunningReader(Lifetime):
    """One reader, which ends when the pipe's source changes or the service stops."""

    def __init__(self, health: Health, pipe: str, source: CollectedSource) -> None:
        reader_health = _ReaderHealth(health, pipe)
        super().__init__(reader_health)
        self.reader_health = reader_health
        self.source = source
        self.task: asyncio.Task[None] | None = None
        self.ending: asyncio.Task[None] | None = None
        """Waits until it has ended; None: it goes on."""

    async def end(self) -> None:
        """Stop reading, and wait until the events that were read are written and committed."""
        self.stopping.set()
        if self.task is not None:
            await asyncio.wait([self.task])
        self.reader_health.clear()


class SourceReaders:
    """The readers of all pipes."""

    def __init__(
        self,
        lifetime: Lifetime,
        settings: CollectSettings,
        registry: PipeRegistry,
        writer: RawWriter,
        source_colour: SourceColour,
        paces: BackfillController,
    ) -> None:
        """Nothing is read before `run`.

        Args:
            lifetime: ends all readers.
            settings: of the service.
            registry: of the pipes, started.
            writer: to `raw`.
            source_colour: decides whether sources are read here.
            paces: of the sources.
        """
        self._lifetime = lifetime
        self._paces = paces
        self._settings = settings
        self._registry = registry
        self._writer = writer
        self._running: dict[str, _RunningReader] = {}
        self._changed = asyncio.Event()
        self._source_colour = source_colour
        registry.on_change(self._changed.set)
        source_colour.on_change = self._changed.set

    async def run(self) -> None:
        """Start and end readers as pipes change until the stop; then end all."""
        while not self._lifetime.stopping.is_set():
            self._changed.clear()
            self._update_readers(self._declared_sources())
            await self._lifetime.unless_stopped(self._changed.wait())
        self._update_readers({})
        await asyncio.gather(
            *(reader.ending for reader in self._running.values() if reader.ending is not None)
        )

    def _declared_sources(self) -> dict[str, CollectedSource]:
        """Pipe to the source to read now. The source of a paused or held pipe is read on later from its position."""
        if not self._source_colour.reads:
            return {}
        registry = self._registry
        active_pipes = [revision.pipe for revision in registry.all() if not revision.paused]
        pipes = [pipe for pipe in active_pipes if registry.held(pipe.pipe) is None]
        sources = {pipe.pipe: pipe.source for pipe in pipes if isinstance(pipe.source, CollectedSource)}
        return {name: source for name, source in sources.items() if not isinstance(source, StepSource)}

    def _update_readers(self, declared_sources: dict[str, CollectedSource]) -> None:
        """Start and end readers. A reader that takes long to end delays only the next reader of its pipe."""
        for name, reader in self._running.items():
            if reader.ending is None and declared_sources.get(name) != reader.source:
                reader.ending = asyncio.create_task(self._end(name, reader))
        for name in sorted(declared_sources.keys() - self._running.keys()):
            reader = self._running[name] = _RunningReader(self._lifetime.health, name, declared_sources[name])
            reader.task = asyncio.create_task(self._read(reader, name))
            logger.info("source-begun", pipe=name)

    async def _end(self, pipe: str, reader: _RunningReader) -> None:
        await reader.end()
        del self._running[pipe]
        logger.info("source-ended", pipe=pipe)
        self._changed.set()

    async def _read(self, reader: _RunningReader, pipe: str) -> None:
        """Read a source until it ends; unusable settings are tried again."""
        while not reader.stopping.is_set():
            try:
                await self._read_once(reader, pipe)
            except Misconfigured as error:
                logger.error("source-misconfigured", pipe=pipe, error=str(error))  # noqa: TRY400 - the message says it
                reader.health.warn("settings", str(error))
                await reader.sleep(self._settings.collect_retry_s)
            except Exception as error:
                logger.exception("source-failed", pipe=pipe)
                reader.health.warn("settings", f"the reader failed: {error!r}")
                await reader.sleep(self._settings.collect_retry_s)

    async def _read_once(self, reader: _RunningReader, pipe: str) -> None:
        source, settings = reader.source, self._settings
        require_none(source_refusals(pipe, source, pipe_limits()))
        self._require_own_topic(pipe, source)
        context = SourceContext(
            settings.stream,
            pipe,
            settings.collect_max_event_bytes,
            settings.collect_temp,
            settings.collect_reader_bytes,
        )
        opened_source = installed_source_kind(source.kind).open(source, context)
        if isinstance(opened_source, PolledSource):
            with self._paces.source_pace(pipe, source.backfill) as pace:
                await PolledReader(
                    reader, settings, pipe, source, opened_source, self._registry, self._writer, pace
                ).run()
            return
        if not isinstance(source, TopicSource):
            raise Misconfigured(f"the declaration of the kind {source.kind!r} names no topic")
        if await self._provide_topic(reader, opened_source):
            watch_task = asyncio.create_task(opened_source.watch_topic(reader.health.warn))
            try:
                await self._read_topic(reader, pipe, source, opened_source)
            finally:
                watch_task.cancel()
                await opened_source.close()

    def _require_own_topic(self, pipe: str, source: CollectedSource) -> None:
        """Check that no pipe that was published before writes the topic of a source.

        Raises:
            Misconfigured: such a pipe exists.
        """
        offsets = {revision.pipe.pipe: revision.offset for revision in self._registry.all()}
        earlier_sources = {
            revision.pipe.pipe: revision.pipe.source
            for revision in self._registry.all()
            if revision.offset < offsets.get(pipe, 0)
        }
        if refusal := topic_refusal(source, earlier_sources):
            raise Misconfigured(refusal)

    @staticmethod
    async def _provide_topic(reader: _RunningReader, events: TopicEvents) -> bool:
        """Start what writes the topic; False: the reader has to end."""
        while not reader.stopping.is_set():
            try:
                await events.provide_topic()
            except Retryable as error:
                reader.health.warn("connector", str(error))
                await reader.sleep(_CONNECT_S)
            else:
                return True
        return False

    async def _read_topic(
        self, reader: _RunningReader, pipe: str, source: TopicSource, events: TopicEvents
    ) -> None:
        health = reader.health
        identities: list[TopicIdentity] = []

        async def request_identity() -> None:
            """Ask for the ids of the topic once."""
            identities.append(await topic_identity(source.bootstrap, source.topic, source.security, pipe))

        identity_request = connect(
            request_identity, lambda error: health.warn("topic", f"it cannot be read: {error!r}")
        )
        if await reader.unless_stopped(identity_request):
            health.warn("topic", None)
            health.warn("settings", None)
            with self._paces.source_pace(pipe, source.backfill) as pace:
                pace.held = lambda: events.held
                pace.notice = lambda: events.notice
                topic_reader = KafkaTopicReader(
                    reader,
                    self._settings,
                    pipe,
                    source,
                    identities[0].cluster,
                    events,
                    self._registry,
                    self._writer,
                    pace,
                )
                await topic_reader.run()
