"""Records of a source topic as events. No I/O."""

from collections.abc import Callable
from typing import Final, TypeAlias

import orjson
from aiokafka import ConsumerRecord

from hifi.pipe.sources.event import SourceEvent, refused
from hifi.pipe.sources.partition_key import MAX_KEY_BYTES, partition_key
from hifi.pipe.sources.timestamps import rfc3339_or_none
from hifi.record.cloudevents import decode as cloudevents
from hifi.record.cloudevents.event import DecodedEvent, DecodeLimits, InvalidEvent
from hifi.record.cloudevents.json_slices import is_object, is_within_depth, without_bom
from hifi.record.headers import CONTENT_TYPE, Headers
from hifi.runtime.errors import Rejected
from hifi.runtime.http.media_type import is_json
from hifi_kafka.declaration import KafkaSource
from hifi_kafka.source.avro_records import AvroRecords

_JSON: Final = b"application/json"
_MAX_DEPTH: Final = 64
_ATTRIBUTE_BYTES: Final = 64 * 1024
"""By which data and attributes of a CloudEvent together may be larger than a value: Kafka limits headers otherwise."""
_SPACE: Final = b" \t\r\n"
_PARTITION_KEY: Final = "ce_partitionkey"
_TOO_LARGE: Final = 413

_Decode: TypeAlias = Callable[[Headers, bytes, DecodeLimits], DecodedEvent]
"""Makes an event of the headers and the value of a record."""


class RecordReader:
    """Makes events of the records of one source."""

    def __init__(
        self, source: KafkaSource, cluster: str, max_bytes: int, avro: AvroRecords | None = None
    ) -> None:
        """Prepare the attributes of the events.

        Args:
            source: as the pipe declares it.
            cluster: id of the Kafka cluster.
            max_bytes: largest value of a record.
            avro: decodes Avro; None: the source has none.
        """
        self._avro = avro
        self._id = f"{cluster}/{source.topic}"
        shared_attributes = [
            ("ce_specversion", b"1.0"),
            ("ce_source", f"kafka://{cluster}/{source.topic}".encode()),
            (CONTENT_TYPE, _JSON),
        ]
        self._attributes = [*shared_attributes, ("ce_type", source.type.encode())]
        self._attributes_of_deletion = [*shared_attributes, ("ce_type", source.deleted_type.encode())]
        self._partition_key = None if source.partition_key is None else source.partition_key.split(".")
        self._max_bytes = max_bytes
        self._limits = DecodeLimits(max_bytes, 1, _MAX_DEPTH)

    def __call__(self, record: ConsumerRecord) -> SourceEvent:
        """The event of a record; one that cannot be read is marked as refused."""
        identifier = f"{self._id}/{record.partition}/{record.offset}".encode()
        content_mode = _content_mode(record)
        is_deletion = record.value is None and content_mode is None
        attributes = self._attributes_of_deletion if is_deletion else self._attributes
        headers = [*attributes, ("ce_id", identifier)]
        time_us, time = None, rfc3339_or_none(record.timestamp)
        if time is not None:
            time_us = record.timestamp * 1000
            headers.append(("ce_time", time))
        event = SourceEvent(record.offset, record.key or identifier, record.value, headers, time_us)
        if len(record.key or b"") > MAX_KEY_BYTES:
            detail = f"the key has {len(record.key)} bytes; the limit is {MAX_KEY_BYTES}"
            event.key = identifier
            return refused(event, "too-large", detail)
        if record.value is None:
            if content_mode is None:
                return self._deletion(event, record.key)
            return self._cloudevent(event, record, b"", content_mode)
        return self._with_value(event, record, content_mode)

    def _with_value(
        self, event: SourceEvent, record: ConsumerRecord, content_mode: _Decode | None
    ) -> SourceEvent:
        """The event of a record with a value."""
        if len(record.value) > self._max_bytes:
            detail = f"the value has {len(record.value)} bytes; the limit is {self._max_bytes}"
            event.data = None
            return refused(event, "too-large", detail)
        if self._avro is not None:
            try:
                record = self._avro.as_json(record)
            except Rejected as rejection:
                return refused(event, rejection.reason, rejection.detail)
            event.data = record.value
        if content_mode is None:
            return self._plain(event, without_bom(record.value))
        return self._cloudevent(event, record, record.value, content_mode)

    def _plain(self, event: SourceEvent, text: bytes) -> SourceEvent:
        """The event of a record whose value is a JSON object."""
        event.data = text
        try:
            is_an_object, key = self._read(text)
        except InvalidEvent as error:
            return refused(
                event, "not-json", f"the value is not JSON: {error.detail.removeprefix('not JSON: ')}"
            )
        except Rejected as rejection:
            return refused(event, rejection.reason, rejection.detail)
        if not is_an_object:
            return refused(event, "not-json", "the value is not a JSON object")
        if not is_within_depth(text, _MAX_DEPTH):
            return refused(event, "not-json", f"the value is nested deeper than {_MAX_DEPTH} levels")
        event.key = key or event.key
        return event

    def _cloudevent(
        self, event: SourceEvent, record: ConsumerRecord, value: bytes, decode: _Decode
    ) -> SourceEvent:
        """The event of a record that is a CloudEvent, with its own attributes."""
        try:
            decoded_event = decode(_attribute_headers(record), value, self._limits)
        except InvalidEvent as error:
            reason = "too-large" if error.status == _TOO_LARGE else "not-a-cloudevent"
            event.data = None
            return refused(event, reason, error.detail)
        size_bytes, most_bytes = decoded_event.size_bytes(), self._max_bytes + _ATTRIBUTE_BYTES
        if size_bytes > most_bytes:
            event.data = None
            detail = f"data and attributes have {size_bytes} bytes; the limit of a CloudEvent is {most_bytes}"
            return refused(event, "too-large", detail)
        has_key = any(name == _PARTITION_KEY for name, _ in decoded_event.headers)
        key = decoded_event.key if has_key or not record.key else record.key
        cloudevent = SourceEvent(
            event.position, key, decoded_event.data, decoded_event.headers, decoded_event.time_us
        )
        if self._partition_key is None:
            return cloudevent
        try:
            cloudevent.key = self._read(decoded_event.data)[1] or key
        except InvalidEvent:  # data of another type
            pass
        except Rejected as rejection:
            return refused(cloudevent, rejection.reason, rejection.detail)
        return cloudevent

    def _read(self, text: bytes) -> tuple[bool, bytes | None]:
        """Whether JSON is an object, and the partition key that the pipe declares, if the object has it.

        Raises:
            InvalidEvent: it is not JSON.
            Rejected: the field is no partition key.
        """
        if self._partition_key is None or text.lstrip(_SPACE)[:1] != b"{":
            return is_object(text), None
        return True, partition_key(text, self._partition_key)

    def _deletion(self, event: SourceEvent, key: bytes | None) -> SourceEvent:
        """The event of a record without value, which says that the key is deleted."""
        if not key:
            return refused(event, "no-data", "the record has neither value nor key")
        try:
            decoded_key = None if self._avro is None else self._avro.key_as_json(key)
            name = key.decode() if decoded_key is None else orjson.Fragment(decoded_key)
        except UnicodeDecodeError:
            return refused(event, "no-data", "the record has no value, and its key is not UTF-8")
        except Rejected as rejection:
            return refused(
                event, rejection.reason, f"the record has no value, and of its key: {rejection.detail}"
            )
        event.data = orjson.dumps({"key": name, "deleted": True})
        return event


def _content_mode(record: ConsumerRecord) -> _Decode | None:
    """The decoder of a record that is a CloudEvent; None: it is none. Kafka protocol binding 1.0.2, section 3."""
    if not record.headers:
        return None
    headers = dict(_attribute_headers(record))
    content_type = headers.get(cloudevents.KAFKA_CONTENT_TYPE, b"")
    if content_type.partition(b";")[0].strip().lower() == cloudevents.STRUCTURED:
        return _structured
    return _binary if f"{cloudevents.KAFKA_PREFIX}specversion" in headers else None


def _attribute_headers(record: ConsumerRecord) -> Headers:
    """The headers of a record; one whose value is null is left out, as if it were absent."""
    return [(name, value) for name, value in record.headers if value is not None]


def _structured(_: Headers, value: bytes, limits: DecodeLimits) -> DecodedEvent:
    if not value:
        raise InvalidEvent("the record has no value, and its content-type names a structured CloudEvent")
    return cloudevents.structured(without_bom(value), limits)


def _binary(headers: Headers, value: bytes, limits: DecodeLimits) -> DecodedEvent:
    if is_json(dict(headers).get(cloudevents.KAFKA_CONTENT_TYPE, b"")):
        value = without_bom(value)
    return cloudevents.kafka_binary(headers, value, limits)
