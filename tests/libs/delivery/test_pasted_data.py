"""The envelope and the array around an accepted event are valid JSON for all declarations of a sender."""

import base64
import json
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from hypothesis import example, given
from hypothesis import strategies as st

from hifi.record.cloudevents import decode as cloudevents
from hifi.record.cloudevents.event import DecodedEvent, DecodeLimits, InvalidEvent
from hifi.runtime.errors import Rejected
from hifi_http.declaration import HttpDestination
from hifi_http.destination.request_template import RequestTemplate

LIMITS = DecodeLimits(event_bytes=100_000, batch_events=10, depth=16)
BOM = b"\xef\xbb\xbf"
ATTRIBUTES = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
DATA = st.binary(max_size=20) | st.sampled_from(
    [
        b'{"b":2',
        b"not json {",
        b'{"a":1}',
        BOM + b'{"a":1}',
        b'{"a":"\xff"}',
        b"1 2",
        b"NaN",
        b"}",
        b"]",
        b"null",
        b" [1]\n",
        b"[" * 17 + b"]" * 17,
        b'"\\ud800"',
        '{"a":1}'.encode("utf-16"),
    ]
)
TYPES = st.none() | st.sampled_from(
    ["application/json", "a/b+JSON; charset=utf-8", "text/plain", "application/octet-stream"]
)


def binary(data: bytes, declared: str | None) -> DecodedEvent:
    headers = [(f"ce-{name}".encode(), value.encode()) for name, value in ATTRIBUTES.items()]
    if declared is not None:
        headers.append((b"content-type", declared.encode()))
    return cloudevents.binary(headers, data, LIMITS)


def kafka_binary(data: bytes, declared: str | None) -> DecodedEvent:
    headers = [(f"ce_{name}", value.encode()) for name, value in ATTRIBUTES.items()]
    if declared is not None:
        headers.append(("content-type", declared.encode()))
    return cloudevents.kafka_binary(headers, data, LIMITS)


def structured(data: bytes, declared: str | None) -> DecodedEvent:
    event: dict[str, Any] = ATTRIBUTES | {"data_base64": base64.b64encode(data).decode()}
    if declared is not None:
        event["datacontenttype"] = declared
    return cloudevents.structured(json.dumps(event).encode(), LIMITS)


def batch_of_three(event: DecodedEvent, body_format: str) -> Any:
    """The JSON of a request with the event between two others."""
    neighbour = binary(b'{"n":1}', "application/json")
    records = [
        ConsumerRecord("enriched", 0, 0, 0, 0, b"k", data, None, 0, len(data), tuple(headers))
        for _, _, _, headers, data, _ in (neighbour, event, neighbour)
    ]
    destination = HttpDestination.model_validate(
        {"name": "d", "url": "http://127.0.0.1:9/", "format": body_format, "batch": {"size": 10}}
    )
    template = RequestTemplate(destination, {}, [])
    request = template.request(records, [template.part(record) for record in records], 0)
    return json.loads(request.partition(b"\r\n\r\n")[2], parse_constant=pytest.fail)


@pytest.mark.parametrize("decode", [binary, kafka_binary, structured])
@given(data=DATA, declared=TYPES)
@example(data=b'{"b":2', declared="application/json")
@example(data=b"not json {", declared=None)
def test_requests_stay_valid_json(decode: Any, data: bytes, declared: str | None) -> None:
    try:
        event = decode(data, declared)
    except InvalidEvent:
        assert declared is None or "json" in declared.lower(), "only what claims to be JSON is refused"
        return
    bytes_before, envelope, bytes_after = batch_of_three(event, "cloudevents-structured")
    assert bytes_before["data"] == bytes_after["data"] == {"n": 1}
    if "data_base64" in envelope:
        assert base64.b64decode(envelope["data_base64"]) == data
    elif data:
        assert envelope["data"] == json.loads(data.removeprefix(BOM))
    if "data_base64" in envelope:
        with pytest.raises(Rejected, match="JSON"):
            batch_of_three(event, "json")
    elif data or declared is None or "json" in declared.lower():
        assert batch_of_three(event, "json")[1] == (json.loads(data.removeprefix(BOM)) if data else None)


@pytest.mark.parametrize("decode", [binary, kafka_binary, structured])
def test_bytes_without_a_declared_type_are_sent_as_base64_unless_they_are_json(decode: Any) -> None:
    for data in (b"not json {", b'{"b":2', b"\xff"):
        assert "data_base64" in batch_of_three(decode(data, None), "cloudevents-structured")[1]
    assert batch_of_three(decode(b'{"a":1}', None), "cloudevents-structured")[1]["data"] == {"a": 1}
    with pytest.raises(InvalidEvent):
        decode(b'{"b":2', "application/json")
