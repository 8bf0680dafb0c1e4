"""The kind `objects`, as its entry point names it."""

from hifi.delivery.kind import DestinationKind, DestinationWriter, WriterContext
from hifi_egest.objects.settings import ObjectsSettings


def open_writer(settings: ObjectsSettings, context: WriterContext) -> DestinationWriter:
    """Open a writer.

    Raises:
        Misconfigured: a secret is missing, or Parquet is not installed.
    """
    from hifi_egest.objects.writer import ObjectsWriter  # the clients take 30 MB: only where they are used

    return ObjectsWriter(settings, context)


OBJECTS = DestinationKind(ObjectsSettings, open_writer)
