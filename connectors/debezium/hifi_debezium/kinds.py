"""The kind `debezium`, as the entry point names it. The HTTP client is imported only where it is used."""

from typing import Final

from hifi.pipe.sources.kind import SourceContext, SourceKind, TopicEvents
from hifi_debezium.declaration import DebeziumSource


def _open_source(source: DebeziumSource, context: SourceContext) -> TopicEvents:
    from hifi_debezium.source.change_events import ChangeEvents

    return ChangeEvents(source, context)


DEBEZIUM: Final = SourceKind(DebeziumSource, _open_source)
