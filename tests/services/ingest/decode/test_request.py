"""The format and the encoding of a request are decided by its headers; each refusal says what is wrong."""

import pytest
from ingest_harness import pipe

from hifi.record.cloudevents.event import DecodedEvent, DecodeLimits, InvalidEvent
from hifi.record.cloudevents.json_slices import value_slice
from hifi.runtime.http.problem import Problem
from hifi_ingest.decode.request import EventRequest, PipeFormats, decode_request

LIMITS = DecodeLimits(event_bytes=1000, batch_events=10, depth=10)
EVENT = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{}}'
CE = [(b"ce-specversion", b"1.0"), (b"ce-id", b"1"), (b"ce-source", b"/s"), (b"ce-type", b"t")]


async def decode(content_type: bytes, body: bytes, *headers: tuple[bytes, bytes]) -> list[DecodedEvent]:
    request = EventRequest([(b"content-type", content_type), *headers], body, 0)
    return await decode_request(request, PipeFormats.of("p", pipe("p").source), LIMITS, allow_plain_json=True)


REQUESTS = [
    (b"application/json", b'{"a":1}', []),
    (b"application/x-ndjson", b'{"a":1}\n{"a":2}', []),
    (b"application/cloudevents+json", EVENT, []),
    (b"application/cloudevents-batch+json", b"[" + EVENT + b"]", []),
    (b"application/json", b'{"a":1}', CE),
    (b"application/vnd.shop+json", b'{"a":1}', CE),
]


@pytest.mark.parametrize(("kind", "body", "headers"), REQUESTS)
@pytest.mark.parametrize("charset", [b"latin-1", b"ISO-8859-1", b'"utf-16"', b"windows-1252", b""])
async def test_json_in_another_charset_than_utf_8_is_415(
    kind: bytes, body: bytes, headers: list[tuple[bytes, bytes]], charset: bytes
) -> None:
    with pytest.raises(Problem) as caught:
        await decode(kind + b"; version=1;Charset=" + charset, body, *headers)
    assert caught.value.status == 415
    assert "UTF-8" in caught.value.detail


@pytest.mark.parametrize(("kind", "body", "headers"), REQUESTS)
@pytest.mark.parametrize("charset", [b"utf-8", b'"UTF-8"', b"utf8", b"us-ascii"])
async def test_json_in_utf_8_is_accepted(
    kind: bytes, body: bytes, headers: list[tuple[bytes, bytes]], charset: bytes
) -> None:
    assert await decode(kind + b"; charset=" + charset, body, *headers)


async def test_data_that_is_not_json_may_have_any_charset() -> None:
    (event,) = await decode(b"text/plain; charset=latin-1", b"\xe9", *CE)
    assert event.data == b"\xe9"
    assert (b"text/plain; charset=latin-1") in dict(event.headers).values()


@pytest.mark.parametrize(
    "text",
    [
        rb'{"a":"\ud800"}',
        rb'{"a":"\ud800x"}',
        rb'{"a":"\udc00"}',
        rb'{"\uD800":1}',
        rb'{"a":"\ud83d\ude00 \ud83d"}',
        rb'["\ud800\udbff"]',
    ],
)
def test_a_lone_surrogate_is_named_as_the_error(text: bytes) -> None:
    with pytest.raises(InvalidEvent) as caught:
        value_slice(text)
    assert "half of a surrogate pair" in caught.value.detail


@pytest.mark.parametrize("text", [rb'{"a":"\\ud800"', rb'{"a":"\ud83d\ude00"', rb'{"a":"x"'])
def test_truncated_json_is_not_taken_for_a_lone_surrogate(text: bytes) -> None:
    with pytest.raises(InvalidEvent) as caught:
        value_slice(text)
    assert "truncated" in caught.value.detail
    assert "surrogate" not in caught.value.detail
