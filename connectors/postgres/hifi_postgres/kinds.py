"""The kinds `sql` and `postgres`, as the entry points name them. The driver (10 MB) is imported where it is used."""

from typing import Final

from hifi.delivery.kind import DestinationKind, DestinationWriter, WriterContext
from hifi.pipe.sources.kind import PolledSource, SourceContext, SourceKind
from hifi_postgres.declaration import PostgresSettings, SqlSource


def _open_source(source: SqlSource, context: SourceContext) -> PolledSource:
    from hifi_postgres.source.polling import SqlPolling

    return SqlPolling(source, context)


def _open_writer(settings: PostgresSettings, context: WriterContext) -> DestinationWriter:
    from hifi_postgres.destination.writer import PostgresWriter

    return PostgresWriter(settings, context)


SQL: Final = SourceKind(SqlSource, _open_source)
POSTGRES: Final = DestinationKind(PostgresSettings, _open_writer, several_logs=True)
