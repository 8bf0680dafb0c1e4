"""The kinds `kafka`, as the entry points name them. Clients and decoders are imported only where they are used."""

from collections.abc import Mapping
from typing import Any, Final

from hifi.delivery.kind import DestinationKind, DestinationWriter, WriterContext
from hifi.pipe.model import ConnectorDestination, Pipe
from hifi.pipe.sources.kind import SourceContext, SourceKind, TopicEvents
from hifi_kafka.declaration import KafkaDestinationSettings, KafkaSource


def _open_source(source: KafkaSource, context: SourceContext) -> TopicEvents:
    from hifi_kafka.source.record_events import RecordEvents

    return RecordEvents(source, context)


def _open_writer(settings: KafkaDestinationSettings, context: WriterContext) -> DestinationWriter:
    from hifi_kafka.destination.writer import KafkaWriter

    return KafkaWriter(settings, context)


def _check(destination: ConnectorDestination, pipe: Pipe, settings: KafkaDestinationSettings) -> None:
    if settings.avro is not None:
        from hifi_kafka.destination.avro_schema import check_avro

        check_avro(destination, pipe, settings)


def _complete(
    destination: ConnectorDestination, pipe: Pipe, settings: KafkaDestinationSettings
) -> Mapping[str, Any]:
    if settings.avro is None:
        return destination.settings
    from hifi_kafka.destination.avro_schema import with_avro_schema

    return with_avro_schema(destination, pipe, settings)


def _unproven(_settings: KafkaDestinationSettings) -> str:
    return (
        "in one run with faults 2 of 5,324 events did not arrive, though counted as delivered, while the destination's "
        "cluster was frozen; the cause is not known"
    )


SOURCE: Final = SourceKind(KafkaSource, _open_source)
DESTINATION: Final = DestinationKind(
    KafkaDestinationSettings, _open_writer, _check, _complete, several_logs=True, unproven=_unproven
)
