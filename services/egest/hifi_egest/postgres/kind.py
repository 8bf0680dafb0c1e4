"""The kind `postgres`, as its entry point names it."""

from hifi.delivery.kind import DestinationKind, DestinationWriter, WriterContext
from hifi_egest.postgres.settings import PostgresSettings


def open_writer(settings: PostgresSettings, context: WriterContext) -> DestinationWriter:
    """Open a writer.

    Raises:
        Misconfigured: the URL is missing or not valid.
    """
    from hifi_egest.postgres.writer import PostgresWriter  # the driver takes 10 MB: only where it is used

    return PostgresWriter(settings, context)


POSTGRES = DestinationKind(PostgresSettings, open_writer)
