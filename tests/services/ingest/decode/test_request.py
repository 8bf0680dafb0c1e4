"""The format and the encoding of a request are decided by its headers; each refusal says what is wrong."""

import orjson
import pytest
from tests.support.ingest.ingest_harness import pipe

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


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(("kind", "body", "headers"), REQUESTS)
async def test_a_byte_order_mark_at_the_start_of_a_body_is_not_part_of_the_data(
    kind: bytes, body: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    assert [event.data for event in await decode(kind, BOM + body, *headers)] == [
        event.data for event in await decode(kind, body, *headers)
    ]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"application/json", BOM + BOM + b"{}"),
        (b"application/json", b" " + BOM + b"{}"),
        (b"application/x-ndjson", b"{}\n" + BOM + b"{}"),
        (b"application/cloudevents+json", BOM + BOM + EVENT),
        (b"application/json", '{"a":1}'.encode("utf-16")),
        (b"application/x-ndjson", '{"a":1}'.encode("utf-16")),
    ],
)
async def test_another_byte_order_mark_is_named(kind: bytes, body: bytes) -> None:
    with pytest.raises(Problem) as caught:
        await decode(kind, body)
    assert "byte order mark" in repr((caught.value.detail, caught.value.members))


@pytest.mark.parametrize("body", [b"", b"\n", b"\r\n\r\n", b" \t\n\n", BOM + b"\n"])
async def test_json_lines_without_an_event_are_refused(body: bytes) -> None:
    with pytest.raises(Problem) as caught:
        await decode(b"application/x-ndjson", body)
    assert (caught.value.status, caught.value.detail) == (
        400,
        "the body has no event: all of its lines are empty",
    )


async def test_an_invalid_event_is_named_by_its_line() -> None:
    with pytest.raises(Problem) as caught:
        await decode(b"application/x-ndjson", b'\n\n{"a":1}\n\r\n  \n  {"a":\n{"a":2}\n\n5')
    assert caught.value.members is not None
    assert [(event["index"], event["line"]) for event in caught.value.members["events"]] == [(1, 6), (3, 9)]
    with pytest.raises(Problem) as caught:
        await decode(b"application/json", b'[{"a":1},\n\n5]')
    assert caught.value.members is not None
    assert "line" not in caught.value.members["events"][0]


async def decode_declared(body: bytes, **source: str) -> DecodedEvent:
    request = EventRequest([(b"content-type", b"application/json")], body, 0)
    formats = PipeFormats.of("p", pipe("p", **source).source)
    (event,) = await decode_request(request, formats, LIMITS, allow_plain_json=True)
    return event


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"1", b"1"),
        (b'"1"', b"1"),
        (b"-0", b"0"),
        (b"1000000000000000000000000000000", b"1" + b"0" * 30),
        (b"18446744073709551616", b"18446744073709551616"),
        (b'"' + b"x" * 512 + b'"', b"x" * 512),
        (b'"' + "ä".encode() * 256 + b'"', "ä".encode() * 256),
    ],
)
async def test_an_id_is_the_text_of_the_field(value: bytes, text: bytes) -> None:
    assert (await decode_declared(b'{"a":{"id":%b}}' % value, id="a.id")).id == text


@pytest.mark.parametrize("name", ['a"b', "a\\b", "ä", "$", "class"])
async def test_a_field_of_any_name_may_be_the_id(name: str) -> None:
    body = orjson.dumps({"b": 2, name: {"x": "0", name: "7"}})
    assert (await decode_declared(body, id=f"{name}.{name}")).id == b"7"
    with pytest.raises(Problem) as caught:
        await decode_declared(b'{"b":2}', id=name)
    assert caught.value.status == 422


@pytest.mark.parametrize(
    "value", [b'"' + b"x" * 513 + b'"', b"1" * 513, b'"' + "ä".encode() * 257 + b'"', b"1.0", b"1e3", b"true"]
)
async def test_an_id_of_another_kind_or_length_is_422(value: bytes) -> None:
    with pytest.raises(Problem) as caught:
        await decode_declared(b'{"id":%b}' % value, id="id")
    assert caught.value.status == 422


@pytest.mark.parametrize("name", ["id", "source", "type", "subject", "partitionkey", "region", "dataschema"])
async def test_attributes_too_long_for_receivers_are_422(name: str) -> None:
    limit = 512 if name == "id" else 4096
    for length, is_accepted in ((limit, True), (limit + 1, False)):
        event = {
            "specversion": "1.0",
            "id": "1",
            "source": "/s",
            "type": "t",
            name: "a:" + "x" * (length - 2),
        }
        for kind, body in (
            (b"application/cloudevents+json", orjson.dumps(event)),
            (b"application/cloudevents-batch+json", orjson.dumps([event])),
        ):
            request = EventRequest([(b"content-type", kind)], body, 0)
            limits = DecodeLimits(event_bytes=10_000, batch_events=10, depth=10)
            formats = PipeFormats.of("p", pipe("p").source)
            if is_accepted:
                assert await decode_request(request, formats, limits, allow_plain_json=True)
            else:
                with pytest.raises(Problem) as caught:
                    await decode_request(request, formats, limits, allow_plain_json=True)
                assert (caught.value.status, f"the limit is {limit}" in str(caught.value.members)) == (
                    422,
                    True,
                )
