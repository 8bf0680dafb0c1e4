"""CloudEvents are decoded as the CloudEvents SDK encodes them, and no input makes the decoder fail otherwise."""

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import orjson
import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from hypothesis import example, given
from hypothesis import strategies as st

from hifi.record.cloudevents import decode as cloudevents
from hifi.record.cloudevents.attributes import RESERVED_TYPE
from hifi.record.cloudevents.event import DecodedEvent, DecodeLimits, InvalidEvent

LIMITS = DecodeLimits(event_bytes=1_000_000, batch_events=100, depth=64)

TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn", "Co"]), min_size=1, max_size=30)

URI = st.text("abcdefghijklmnopqrstuvwxyzäß0123456789/:.-_~%", min_size=1, max_size=30)

NAME = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=20).filter(
    lambda name: (
        name
        not in {
            "data",
            "id",
            "source",
            "type",
            "subject",
            "time",
            "specversion",
            "dataschema",
            "datacontenttype",
        }
    )
)

YEARS = (datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001 - Hypothesis adds the zone

TIME = st.datetimes(*YEARS, timezones=st.just(UTC) | st.just(timezone(timedelta(hours=-7))))

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)

EVENT = st.builds(
    lambda required, optional, extensions, data: CloudEvent(
        {
            **extensions,
            **{k: v for k, v in optional.items() if v is not None},
            **required,
            "specversion": "1.0",
        },
        data,
    ),
    st.fixed_dictionaries(
        {"id": TEXT, "source": URI, "type": TEXT.filter(lambda name: name != RESERVED_TYPE)}
    ),
    st.fixed_dictionaries(
        {"subject": st.none() | TEXT, "time": TIME, "datacontenttype": st.just("application/json")}
    ),
    st.dictionaries(NAME, TEXT, max_size=3),
    st.dictionaries(st.text(max_size=8), JSON, max_size=4),
)


def attributes(event: DecodedEvent) -> dict[str, str]:
    attribute_texts = {name.removeprefix("ce_"): value.decode() for name, value in event.headers}
    attribute_texts["datacontenttype"] = attribute_texts.pop("content-type")
    return attribute_texts


def expected(event: CloudEvent) -> dict[str, object]:
    return {name: value for name, value in event.get_attributes().items() if name != "time"}


def check(event: CloudEvent, decoded_event: DecodedEvent) -> None:
    decoded_attributes = attributes(decoded_event)
    time = decoded_attributes.pop("time")
    assert decoded_attributes == expected(event)
    event_time = event.get_time()
    assert event_time is not None
    assert datetime.fromisoformat(time) == event_time
    assert decoded_event.time_us == (event_time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )
    assert orjson.loads(decoded_event.data) == event.get_data()
    key = (
        decoded_attributes.get("partitionkey")
        or decoded_attributes.get("subject")
        or decoded_attributes["id"]
    )
    assert decoded_event.key == key.encode()


@given(EVENT)
def test_what_the_sdk_sends_in_binary_mode_is_read_the_same(event: CloudEvent) -> None:
    message = to_binary_event(event)
    headers = [(name.lower().encode(), value.encode()) for name, value in message.headers.items()]
    decoded_event = cloudevents.binary(headers, message.body, LIMITS)
    check(event, decoded_event)
    assert decoded_event.data == message.body


@given(EVENT)
def test_what_the_sdk_sends_in_structured_mode_is_read_the_same(event: CloudEvent) -> None:
    check(event, cloudevents.structured(to_structured_event(event).body, LIMITS))


@given(st.lists(EVENT, max_size=5))
def test_a_batch_reads_as_its_events_alone(events: list[CloudEvent]) -> None:
    bodies = [to_structured_event(event).body for event in events]
    body = b"[" + b" , ".join(bodies) + b"]"
    is_clean = cloudevents.is_clean(body)
    decoded_events = [
        cloudevents.event(members, LIMITS, clean=is_clean) for members in cloudevents.batched(body)
    ]
    assert decoded_events == [cloudevents.structured(event_body, LIMITS) for event_body in bodies]


@given(st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=12))), st.binary(max_size=200))
@example([(b"content-type", b"application/json")], b"[" * 100_000)
@example([(b"ce-id", b'"\\')], b"")
def test_the_decoders_raise_nothing_but_invalid_event_for_any_bytes(
    headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    event_headers = [(b"ce-" + name, value) for name, value in headers] + headers
    required = [(b"ce-" + name, b"1.0") for name in (b"specversion", b"id", b"type", b"source")]
    for decode in (
        lambda: cloudevents.binary(event_headers, body, LIMITS),
        lambda: cloudevents.binary([*required, *event_headers], body, LIMITS),
        lambda: cloudevents.structured(body, LIMITS),
        lambda: cloudevents.structured(
            b'{"specversion":"1.0","id":"1","source":"s","type":"t",' + body + b"}", LIMITS
        ),
        lambda: [
            cloudevents.event(members, LIMITS, clean=cloudevents.is_clean(body))
            for members in cloudevents.batched(body)
        ],
    ):
        with contextlib.suppress(InvalidEvent):
            decode()


def test_quoted_and_percent_encoded_headers_are_decoded_once() -> None:
    headers = [
        (b"ce-specversion", b"1.0"),
        (b"ce-id", b'"a \\"b\\" %25"'),
        (b"ce-source", b"/s"),
        (b"ce-type", b"%E2%82%AC%2520"),
    ]
    decoded_event = cloudevents.binary(headers, b"", LIMITS)
    assert decoded_event.id == b'a "b" %'
    assert dict(decoded_event.headers)["ce_type"] == "€%20".encode()


@pytest.mark.parametrize("text", [b"hifi.watermark", b"hifi%2Ewatermark", b'"hifi.watermark"'])
def test_the_type_of_watermarks_is_refused_in_binary_mode(text: bytes) -> None:
    headers = [(b"ce-specversion", b"1.0"), (b"ce-id", b"1"), (b"ce-source", b"/s"), (b"ce-type", text)]
    with pytest.raises(InvalidEvent, match=r"hifi\.watermark is reserved"):
        cloudevents.binary(headers, b"", LIMITS)


@pytest.mark.parametrize("text", [b'"hifi.watermark"', b'"hifi\\u002ewatermark"'])
def test_the_type_of_watermarks_is_refused_in_structured_mode(text: bytes) -> None:
    body = b'{"specversion":"1.0","id":"1","source":"s","type":' + text + b"}"
    with pytest.raises(InvalidEvent, match=r"hifi\.watermark is reserved"):
        cloudevents.structured(body, LIMITS)


def test_text_data_is_taken_from_its_json_string() -> None:
    body = b'{"specversion":"1.0","id":"1","source":"s","type":"t","datacontenttype":"text/plain","data":"a\\nb"}'
    assert cloudevents.structured(body, LIMITS).data == b"a\nb"


@pytest.mark.parametrize("media_type", ["text/plain", "application/json"])
@pytest.mark.parametrize("charset", ["iso-8859-1", '\\"UTF-16\\"'])
def test_text_of_another_charset_is_taken_as_bytes_only(media_type: str, charset: str) -> None:
    body = '{"specversion":"1.0","id":"1","source":"s","type":"t","datacontenttype":"%s; charset=%s",%s}'
    with pytest.raises(InvalidEvent, match="names another charset"):
        cloudevents.structured((body % (media_type, charset, '"data":"Zoë"')).encode(), LIMITS)
    bytes_body = (body % ("text/plain", charset, '"data_base64":"Wm/r"')).encode()
    assert cloudevents.structured(bytes_body, LIMITS).data == b"Zo\xeb"


@pytest.mark.parametrize("charset", ["utf-8", "US-ASCII"])
def test_text_of_a_charset_that_is_utf_8_is_taken_as_it_is(charset: str) -> None:
    start = '{"specversion":"1.0","id":"1","source":"s","type":"t","data":"a","datacontenttype":'
    body = start + f'"text/plain; charset={charset}"}}'
    assert cloudevents.structured(body.encode(), LIMITS).data == b"a"


def test_null_attributes_are_absent_and_numbers_are_canonical() -> None:
    body = (
        b'{"specversion":"1.0","id":"1","source":"s","type":"t","subject":null,"time":null,"n":-0,"b":false}'
    )
    assert dict(cloudevents.structured(body, LIMITS).headers) == {
        "ce_specversion": b"1.0",
        "ce_id": b"1",
        "ce_source": b"s",
        "ce_type": b"t",
        "ce_n": b"0",
        "ce_b": b"false",
    }


@pytest.mark.parametrize("content_type", [b"text/plain; x=\xff", "text/plain; x=ä".encode()])
def test_a_content_type_that_no_header_can_pass_on_is_refused(content_type: bytes) -> None:
    headers = [(b"ce-specversion", b"1.0"), (b"ce-id", b"1"), (b"ce-source", b"/s"), (b"ce-type", b"t")]
    with pytest.raises(InvalidEvent):
        cloudevents.binary([*headers, (b"content-type", content_type)], b"not json {", LIMITS)
    assert cloudevents.binary([*headers, (b"content-type", b"text/plain; x=1")], b"{", LIMITS).data == b"{"
