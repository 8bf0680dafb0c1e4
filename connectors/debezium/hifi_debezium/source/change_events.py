"""The events of a topic that Debezium writes: its changes. The connector is declared and watched."""

import asyncio
from typing import Final

from hifi.pipe.sources.event import EventReader
from hifi.pipe.sources.kind import SourceContext, TopicEvents, Warn
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source.changes import ChangeReader
from hifi_debezium.source.connector import Connector
from hifi_debezium.source.slot import held_by_slot

_LOOK_S: Final = 15.0


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

    def event_reader(self, cluster: str) -> EventReader:
        """A function that makes the event of each change."""
        return ChangeReader(self._source, cluster, self._max_bytes)

    async def provide_topic(self) -> None:
        """Declare the connector."""
        await self._connector.declare()

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
