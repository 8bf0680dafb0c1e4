"""The kinds `sql` and `postgres`, as the entry points name them. The driver (10 MB) is imported where it is used."""

from collections.abc import Mapping
from typing import Any, Final

from hifi.delivery.kind import DestinationKind, DestinationWriter, WriterContext
from hifi.pipe.model import ConnectorDestination, Pipe
from hifi.pipe.sources.kind import PolledSource, SourceContext, SourceKind
from hifi.runtime.errors import Misconfigured
from hifi_postgres.declaration import PostgresSettings, SqlSource

_CHANGES: Final = "debezium"
"""Kind of sources whose events leave out columns that did not change."""


def _open_source(source: SqlSource, context: SourceContext) -> PolledSource:
    from hifi_postgres.source.polling import SqlPolling

    return SqlPolling(source, context)


def _open_writer(settings: PostgresSettings, context: WriterContext) -> DestinationWriter:
    from hifi_postgres.destination.writer import PostgresWriter

    return PostgresWriter(settings, context)


def _check(destination: ConnectorDestination, pipe: Pipe, settings: PostgresSettings) -> None:
    if pipe.source.kind == _CHANGES and destination.transform is not None and settings.absent is None:
        raise Misconfigured(
            "a `transform` makes null of columns that a change leaves out, such as unchanged long values: map the "
            "columns with `columns` instead, or set `absent: null` if null is what they become"
        )


def _complete(destination: ConnectorDestination, pipe: Pipe, settings: PostgresSettings) -> Mapping[str, Any]:
    if settings.absent is None and pipe.source.kind == _CHANGES and settings.mode == "upsert":
        return {**destination.settings, "absent": "keep"}
    return destination.settings


SQL: Final = SourceKind(SqlSource, _open_source)
POSTGRES: Final = DestinationKind(PostgresSettings, _open_writer, _check, _complete, several_logs=True)
