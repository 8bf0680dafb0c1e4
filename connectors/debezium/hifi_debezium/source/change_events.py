"""The events of a topic that Debezium writes: its changes. The connector is declared and watched.

Rows that a TRUNCATE or a new snapshot has left out are deleted by events in the order of the topic. Their positions are
the offsets of the changes that told of them last: each row that was there before is gone after, so those of a later
TRUNCATE or snapshot are higher.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final

from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError

from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.kind import SourceContext, TopicEvents, Warn
from hifi.runtime import log
from hifi.runtime.backoff import backoff_s
from hifi.runtime.errors import Retryable
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source.changes import BEGUN, COLUMNS, SCANNED, ChangeEvent, ChangeReader, Sweep
from hifi_debezium.source.connector import Connector
from hifi_debezium.source.kept_keys import KeptKeys, KeyChange
from hifi_debezium.source.slot import held_by_slot

_LOOK_S: Final = 15.0

logger = log.get(__name__)


class ChangeEvents(TopicEvents):
    """Makes the events of one source."""

    def __init__(self, source: DebeziumSource, context: SourceContext) -> None:
        """Declare nothing yet.

        Args:
            source: as the pipe declares it.
            context: of the source.
        """
        self._source = source
        self._max_bytes = context.max_event_bytes
        self._connector = Connector(context.stream, context.pipe, source)
        self._pipe = context.pipe
        self._keys = KeptKeys(source.bootstrap, f"{source.topic}.keys", source.security)
        self._reader: ChangeReader | None = None
        self._swept: list[KeyChange] = []
        """Keys of rows whose deletes are being written."""

    def event_reader(self, cluster: str) -> ChangeReader:
        """A function that makes the event of each change."""
        self._reader = ChangeReader(self._source, cluster, self._max_bytes)
        return self._reader

    async def provide_topic(self) -> None:
        """Declare the connector, and create the topic of the keys."""
        await self._keys.provide()
        await self._connector.declare()

    async def prepare(self, batch: Sequence[ConsumerRecord]) -> None:  # noqa: ARG002
        """Read which columns the tables had, before the first change.

        Raises:
            Retryable: Kafka does not answer.
        """
        reader = self._reader
        if reader is None or reader.columns is not None:
            return
        try:
            marks = await self._keys.marks()
        except (KafkaError, OSError) as error:
            raise Retryable(f"the topic {self._keys.topic} cannot be read: {error!r}") from error
        reader.columns = {
            name.removeprefix(COLUMNS): dict(values)
            for name, (_, values) in marks.items()
            if name.startswith(COLUMNS)
        }

    def remember(self, events: Sequence[SourceEvent]) -> Awaitable[None] | None:
        """Write down which rows there are."""
        changes = [
            change for event in events if isinstance(event, ChangeEvent) for change in event.key_changes
        ]
        return self._keys.write(changes) if changes else None

    async def following(
        self, record: ConsumerRecord, event: SourceEvent
    ) -> Sequence[tuple[str, Sequence[SourceEvent]]]:
        """Deletes of the rows that are gone with a TRUNCATE, or at the end of a snapshot."""
        assert isinstance(event, ChangeEvent)
        assert self._reader is not None
        sweep = event.sweep
        assert sweep is not None
        failures = 0
        while True:
            try:
                return await self._deletes(self._reader, record, sweep)
            except (KafkaError, OSError) as error:
                logger.warning("keys-unknown", pipe=self._pipe, error=repr(error))
                await asyncio.sleep(backoff_s(failures))
                failures += 1

    async def _deletes(
        self, reader: ChangeReader, record: ConsumerRecord, sweep: Sweep
    ) -> list[tuple[str, list[SourceEvent]]]:
        tables = sweep.tables or await self._read_tables()
        following = list[tuple[str, list[SourceEvent]]]()
        self._swept = []
        async for partition, lefts in self._keys.left(tables):
            if lefts:
                deletes = [reader.deleted(record, sweep, left) for left in lefts]
                following.append((f"swept/{partition}", deletes))
                self._swept += [KeyChange(left.key, left.offset, present=False) for left in lefts]
        if following:
            logger.warning(
                "rows-swept",
                pipe=self._pipe,
                why=sweep.why,
                tables=sorted(tables),
                rows=sum(len(deletes) for _, deletes in following),
            )
        return following

    async def _read_tables(self) -> dict[str, int]:
        """The tables that the snapshot has read which ends, to the offset at which it began."""
        marks = await self._keys.marks()
        if BEGUN not in marks:
            return {}
        begun, _ = marks[BEGUN]
        return {
            name.removeprefix(SCANNED): begun
            for name, (offset, _) in marks.items()
            if name.startswith(SCANNED) and offset > begun
        }

    async def following_written(self) -> None:
        """Forget the keys of the rows that were deleted."""
        swept, self._swept = self._swept, []
        if swept:
            await self._keys.write(swept)

    async def close(self) -> None:
        """Close the connections."""
        await self._keys.close()

    async def watch_topic(self, warn: Warn) -> None:
        """Show why the connector does not run, restart what has failed of it, and look at its slot, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._connector.watch(warn))
            tasks.create_task(self._watch_slot(warn))

    async def _watch_slot(self, warn: Warn) -> None:
        slot = self._connector.config()["slot.name"]
        while True:
            self.held = await held_by_slot(self._source, slot)
            warn("slot", self.held.excess or None)
            await asyncio.sleep(_LOOK_S)
