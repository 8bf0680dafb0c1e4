"""The OpenAPI document of ingest: what it says of events is what the decoder does."""

from typing import Any

import jsonschema_rs
import orjson
import pytest
from tests.support.openapi_documents import references

from hifi.record.cloudevents.decode import structured
from hifi.record.cloudevents.event import DecodeLimits, InvalidEvent
from hifi_ingest.http.openapi import DOCUMENT

DESCRIBED = orjson.loads(DOCUMENT)
EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
LIMITS = DecodeLimits(event_bytes=10_000, batch_events=10, depth=10)


def test_every_reference_leads_to_a_component() -> None:
    schema_names = {reference.removeprefix("#/components/schemas/") for reference in references(DESCRIBED)}
    assert {"CloudEvent", "Accepted", "Problem", "EventProblem"} <= schema_names
    assert schema_names <= DESCRIBED["components"]["schemas"].keys()


@pytest.mark.parametrize(
    ("changes", "valid"),
    [
        ({}, True),
        (
            {"subject": "a", "time": "2026-01-31T23:59:59Z", "datacontenttype": "text/plain", "data": "x"},
            True,
        ),
        ({"subject": None, "time": None, "datacontenttype": None, "dataschema": None}, True),
        ({"dataschema": "https://example.com/schema", "data": {"a": [1, None]}}, True),
        ({"data_base64": "aGk="}, True),
        ({"data_base64": None}, True),
        ({"extension": "x", "flag": True, "number": 7, "nothing": None}, True),
        ({"specversion": "0.3"}, False),
        ({"id": ""}, False),
        ({"id": 1}, False),
        ({"source": ""}, False),
        ({"type": None}, False),
        ({"subject": ""}, False),
        ({"subject": 1}, False),
        ({"time": 1}, False),
        ({"dataschema": False}, False),
        ({"extension": {"a": 1}}, False),
        ({"extension": 1.5}, False),
        ({"data_base64": 1}, False),
    ],
)
def test_the_document_and_the_decoder_accept_the_same_events(changes: dict[str, Any], valid: bool) -> None:
    event = EVENT | changes
    schema = DESCRIBED["components"]["schemas"]["CloudEvent"] | {"components": DESCRIBED["components"]}
    assert jsonschema_rs.Draft202012Validator(schema).is_valid(event) is valid
    try:
        structured(orjson.dumps(event), LIMITS)
    except InvalidEvent:
        assert not valid
    else:
        assert valid


@pytest.mark.parametrize("name", ["specversion", "id", "source", "type"])
def test_the_document_and_the_decoder_require_the_same_attributes(name: str) -> None:
    assert name in DESCRIBED["components"]["schemas"]["CloudEvent"]["required"]
    with pytest.raises(InvalidEvent):
        structured(orjson.dumps({key: value for key, value in EVENT.items() if key != name}), LIMITS)
