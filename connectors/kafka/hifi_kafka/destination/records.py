"""The records of a Kafka destination. Pure."""

import base64
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import orjson

from hifi.delivery.kind import OutboundEvent
from hifi.kafka.topics import MAX_RECORD_BYTES
from hifi.runtime import exact_json
from hifi.runtime.errors import Rejected
from hifi.runtime.http.media_type import is_json
from hifi_kafka.declaration import KafkaDestinationSettings

_MANY_DIGITS: Final = re.compile(rb"[0-9][0-9.]{15}|[0-9][eE]|-0")
STRUCTURED = "application/cloudevents+json"


class DestinationRecord(NamedTuple):
    """Key, value and headers."""

    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]


def destination_record(
    event: OutboundEvent,
    settings: KafkaDestinationSettings,
    avro: Callable[[Any], bytes] | None = None,
) -> DestinationRecord:
    """The record of an event, by the Kafka protocol binding of CloudEvents 1.0.

    Args:
        event: to write.
        settings: of the destination.
        avro: makes the value of the data, with the format `avro`.

    Raises:
        Rejected: the position of the event is unknown, it has no such key, its data does not fit the Avro schema, or it
            is too large.
    """
    if event.offset < 0:
        raise Rejected("no-position", "the offset of the event in `raw` is unknown")
    key = event.key
    if settings.key_attribute is not None:
        attribute = event.attribute(settings.key_attribute)
        if attribute is None:
            raise Rejected("no-key", f"the event has no attribute {settings.key_attribute}")
        key = attribute.encode()
    headers = [(name, value.encode()) for name, value in settings.headers.items()]
    value = event.data
    if settings.format == "cloudevents-structured":
        value = _structured(event)
        headers.append(("content-type", STRUCTURED.encode()))
    elif settings.format == "cloudevents-binary":
        headers += [(f"ce_{name}", text.encode()) for name, text in event.attributes.items()]
        headers.append(("content-type", event.content_type.encode()))
    elif avro is not None:
        value = avro(_exact(event))
    if len(value) > MAX_RECORD_BYTES:
        raise Rejected("too-large", f"the record is larger than {MAX_RECORD_BYTES:,} bytes")
    return DestinationRecord(key, value, headers)


def _exact(event: OutboundEvent) -> Any:
    """The data, with every digit of numbers that `orjson` may round."""
    if _MANY_DIGITS.search(event.data) is None:
        return event.json()
    try:
        return exact_json.loads(event.data)
    except ValueError as error:
        raise Rejected("not-json", f"the data cannot be read as JSON: {error}") from None


def _structured(event: OutboundEvent) -> bytes:
    members: dict[str, object] = {**event.attributes, "datacontenttype": event.content_type}
    if event.data and is_json(event.content_type.encode()):
        return orjson.dumps(members | {"data": orjson.Fragment(event.data)})
    return orjson.dumps(members | {"data_base64": base64.b64encode(event.data).decode()})
