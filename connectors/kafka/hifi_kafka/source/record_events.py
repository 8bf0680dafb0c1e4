"""The events of a topic of any Kafka cluster: its records, decoded where they are Avro."""

from collections.abc import Sequence

from aiokafka import ConsumerRecord

from hifi.pipe.sources.event import EventReader
from hifi.pipe.sources.kind import SourceContext, TopicEvents
from hifi_kafka.declaration import KafkaSource
from hifi_kafka.source.avro_records import AvroRecords
from hifi_kafka.source.records import RecordReader


class RecordEvents(TopicEvents):
    """Makes the events of one source."""

    def __init__(self, source: KafkaSource, context: SourceContext) -> None:
        """Ask for no schema yet.

        Args:
            source: as the pipe declares it.
            context: of the source.
        """
        self._source = source
        self._max_bytes = context.max_event_bytes
        registry, pipe = source.registry, context.pipe
        self._avro = None if registry is None else AvroRecords(source, self._max_bytes, pipe)

    def event_reader(self, cluster: str) -> EventReader:
        """A function that makes the event of each record."""
        return RecordReader(self._source, cluster, self._max_bytes, self._avro)

    async def prepare(self, batch: Sequence[ConsumerRecord]) -> None:
        """Get the schemas of a batch."""
        if self._avro is not None:
            await self._avro.prepare(batch)
