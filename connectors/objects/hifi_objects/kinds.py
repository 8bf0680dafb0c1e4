"""The kinds `objects`, as the entry points name them. The clients (30 MB) are imported where they are used."""

from typing import Final

from hifi.delivery.kind import DestinationKind, DestinationWriter, WriterContext
from hifi.pipe.sources.kind import PolledSource, SourceContext, SourceKind
from hifi_objects.declaration import ObjectsSettings, ObjectsSource


def _open_source(source: ObjectsSource, context: SourceContext) -> PolledSource:
    from hifi_objects.source.objects_reader import ObjectsReader

    if source.s3 is not None:
        from hifi_objects.source.bucket import ReadableBucket

        return ObjectsReader(
            source, ReadableBucket(source.s3, context.pipe, context.temporary_folder), context
        )
    from hifi_objects.source.folder import ReadableFolder

    assert source.folder is not None
    return ObjectsReader(source, ReadableFolder(source.folder), context)


def _open_writer(settings: ObjectsSettings, context: WriterContext) -> DestinationWriter:
    from hifi_objects.destination.writer import ObjectsWriter

    return ObjectsWriter(settings, context)


SOURCE: Final = SourceKind(ObjectsSource, _open_source)
DESTINATION: Final = DestinationKind(ObjectsSettings, _open_writer, several_logs=True)
