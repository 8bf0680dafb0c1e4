"""The fast way of decoding a batch gives what the general one gives, or leaves the batch to it."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.pipe.source import HttpSource
from hifi.record.cloudevents import decode as cloudevents
from hifi.record.cloudevents.event import DecodedEvent, DecodeLimits, InvalidEvent
from hifi_ingest.decode import clean_batches
from hifi_ingest.decode.request import EventRequest, PipeFormats, decode_request

LIMITS = DecodeLimits(event_bytes=10_000, batch_events=100, depth=5)
EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"n": 1}}
CLEAN = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\'), max_size=8)
VALUE = CLEAN | st.sampled_from(["1.0", "", "/s", "2026-01-31T23:59:59.5Z", "application/json", "text/plain"])
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | CLEAN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(CLEAN, inner, max_size=3),
    max_leaves=6,
)
MEMBER = st.none() | st.integers(-(2**40), 2**40) | VALUE
EVENTS = st.lists(
    st.builds(
        lambda changes: {name: value for name, value in (EVENT | changes).items() if value != "absent"},
        st.fixed_dictionaries(
            {},
            optional={
                name: MEMBER | st.just("absent")
                for name in ("specversion", "id", "source", "type", "subject", "time", "datacontenttype")
            }
            | dict.fromkeys(("partitionkey", "dataschema", "traceparent", "my", "My"), MEMBER)
            | {"data": DATA | st.just("absent"), "data_base64": st.sampled_from(["AAAA", "?", None])},
        ),
    ),
    max_size=4,
)


def general(body: bytes) -> list[DecodedEvent] | None:
    """The events that the general decoder makes of a batch; None: it refuses it."""
    is_clean = cloudevents.is_clean(body)
    try:
        return [cloudevents.event(members, LIMITS, clean=is_clean) for members in cloudevents.batched(body)]
    except InvalidEvent:
        return None


def fast(body: bytes) -> list[DecodedEvent] | None:
    clean_events = clean_batches.clean_events(body)
    return None if clean_events is None else clean_batches.decode(clean_events, LIMITS)


def in_order(events: list[DecodedEvent]) -> list[DecodedEvent]:
    return [event._replace(headers=sorted(event.headers)) for event in events]


@given(EVENTS)
def test_it_decodes_as_the_general_decoder_or_not_at_all(events: list[dict[str, Any]]) -> None:
    body = orjson.dumps(events)
    decoded_events = fast(body)
    if decoded_events is not None:
        reference = general(body)
        assert reference is not None
        assert in_order(decoded_events) == in_order(reference)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"subject": "N1", "time": "2026-01-31T23:59:59.5Z", "partitionkey": "k"},
        {"datacontenttype": "application/json"},
        {"subject": None, "time": None, "data": [1, {"a": None}]},
    ],
)
def test_the_usual_batch_is_decoded(changes: dict[str, Any]) -> None:
    body = orjson.dumps([EVENT, EVENT | changes])
    decoded_events, reference = fast(body), general(body)
    assert decoded_events is not None
    assert reference is not None
    assert in_order(decoded_events) == in_order(reference)


@pytest.mark.parametrize(
    "changes",
    [
        {"id": ""},
        {"id": None},
        {"specversion": "0.3"},
        {"source": "a b"},
        {"time": "yesterday"},
        {"my": "extension"},
        {"data_base64": "AAAA"},
        {"datacontenttype": "text/plain"},
        {"data": [[[[[[1]]]]]]},
        {"type": "hifi.watermark"},
        {"id": "café"},
        {"id": "\x7f"},
    ],
)
def test_anything_else_is_left_to_the_general_decoder(changes: dict[str, Any]) -> None:
    assert fast(orjson.dumps([EVENT, EVENT | changes])) is None


@pytest.mark.parametrize("is_fast", [True, False])
async def test_the_limits_of_a_batch_hold_either_way(is_fast: bool) -> None:
    formats = PipeFormats.of("flights", HttpSource.model_validate({"keys": [{"sha256": "0" * 64}]}))
    limits = DecodeLimits(event_bytes=200, batch_events=300, depth=LIMITS.depth)

    async def statuses(events: list[dict[str, Any]]) -> int:
        extension = {} if is_fast else {"my": "extension"}
        body = orjson.dumps([event | extension for event in events])
        request = EventRequest([(b"content-type", b"application/cloudevents-batch+json")], body, 0)
        try:
            return len(await decode_request(request, formats, limits, allow_plain_json=False))
        except Exception as problem:  # noqa: BLE001 - its status is the result
            return -int(getattr(problem, "status", 500))

    many_events = [EVENT | {"id": str(n)} for n in range(301)]
    assert await statuses(many_events[:300]) == 300
    assert await statuses(many_events) == -413
    assert await statuses([EVENT, EVENT]) == -400
    assert await statuses([EVENT, EVENT | {"id": "2", "data": "x" * 200}]) == -413
