"""The kind `kafka`, as its entry point names it."""

from hifi.delivery.kind import DestinationKind
from hifi_egest.kafka.avro_schema import check_avro, with_avro_schema
from hifi_egest.kafka.settings import KafkaDestinationSettings
from hifi_egest.kafka.writer import KafkaWriter

KAFKA = DestinationKind(KafkaDestinationSettings, KafkaWriter, check_avro, with_avro_schema)
