"""Records of a source topic with Avro in Confluent's wire format, as the same records with JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from aiokafka import ConsumerRecord

from hifi.avro.registry_client import RegistryAccess, RegistryClient
from hifi.record.cloudevents.decode import KAFKA_CONTENT_TYPE
from hifi.runtime.errors import Rejected
from hifi_kafka.avro import wire_format
from hifi_kafka.avro.decode import decode
from hifi_kafka.avro.schemas_by_id import SchemasById
from hifi_kafka.declaration import KafkaSource

_JSON: Final = b"application/json"


class AvroRecords:
    """Decodes the records of one source."""

    def __init__(self, source: KafkaSource, max_bytes: int, pipe: str) -> None:
        """Ask for nothing yet.

        Args:
            source: as the pipe declares it, with a registry.
            max_bytes: largest value of a record, before and after it is decoded.
            pipe: name.
        """
        registry = source.registry
        assert registry is not None
        access = RegistryAccess(registry.url, registry.user, registry.password_file, registry.ca_file, pipe)
        self._schemas = SchemasById(RegistryClient(access))
        self._values, self._keys = source.format == "avro", source.key_format == "avro"
        self._max_bytes = max_bytes

    async def prepare(self, batch: Sequence[ConsumerRecord]) -> None:
        """Get the schemas of a batch; to be called right before the batch is decoded.

        Raises:
            Retryable: the registry does not answer, or refuses the user.
            Misconfigured: a file of the registry's settings cannot be read.
        """
        await self._schemas.load(self._ids(batch))

    def as_json(self, record: ConsumerRecord) -> ConsumerRecord:
        """A record with its value as JSON.

        Raises:
            Rejected: the value cannot be decoded.
        """
        if not self._values:
            return record
        value = self._decode(record.value)
        if len(value) > self._max_bytes:
            detail = f"the value has {len(value)} bytes as JSON; the limit is {self._max_bytes}"
            raise Rejected("too-large", detail)
        headers = [
            (name, _JSON if name == KAFKA_CONTENT_TYPE else text) for name, text in record.headers or ()
        ]
        return replace(record, value=value, headers=headers, serialized_value_size=len(value))

    def key_as_json(self, key: bytes) -> bytes | None:
        """The key of a record as JSON; None: it is not declared to be Avro.

        Raises:
            Rejected: it cannot be decoded.
        """
        return self._decode(key) if self._keys else None

    def _ids(self, batch: Sequence[ConsumerRecord]) -> Iterator[int]:
        for record in batch:
            message = record.value
            if message is None:
                message = record.key if self._keys else None
            elif not self._values or len(message) > self._max_bytes:
                continue
            if message is not None:
                try:
                    yield wire_format.schema_id(message)
                except Rejected:
                    continue  # so does `as_json`

    def _decode(self, message: bytes) -> bytes:
        schema = self._schemas.get(wire_format.schema_id(message))
        return decode(schema, wire_format.payload(message))
