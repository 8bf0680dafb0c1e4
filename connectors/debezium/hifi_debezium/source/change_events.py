"""The events of a topic that Debezium writes: its changes. The connector is declared and watched."""

from hifi.pipe.sources.event import EventReader
from hifi.pipe.sources.kind import SourceContext, TopicEvents, Warn
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source.changes import ChangeReader
from hifi_debezium.source.connector import Connector


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
        """Show why the connector does not run, and restart what has failed of it, until cancelled."""
        await self._connector.watch(warn)
