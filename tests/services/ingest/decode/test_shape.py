"""Bodies that would take much time or memory to decode are refused before they are decoded."""

import asyncio
import sys
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.ingest.ingest_harness import pipe

from hifi.record.cloudevents import attributes, json_slices
from hifi.record.cloudevents.event import DecodeLimits
from hifi.runtime.http import media_type
from hifi.runtime.http.problem import Problem
from hifi_ingest.decode import request as request_module
from hifi_ingest.decode import shape
from hifi_ingest.decode.request import EventRequest, PipeFormats, decode_request
from hifi_ingest.decode.shape import Shape, chunks

LIMITS = DecodeLimits(event_bytes=100_000, batch_events=1000, depth=64)
PLAIN, LINES = b"application/json", b"application/x-ndjson"
ONE, BATCH = b"application/cloudevents+json", b"application/cloudevents-batch+json"
TEXT = st.text(st.sampled_from('a,[]{}"\\:'), max_size=6)
JSON = st.recursive(
    st.integers(0, 99) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def commas(value: Any, level: int) -> int:
    """Commas between the elements that are `level` levels below a value."""
    if not isinstance(value, list | dict):
        return 0
    if level:
        elements = value.values() if isinstance(value, dict) else value
        return sum(commas(element, level - 1) for element in elements)
    return max(0, len(value) - 1)


@given(JSON, st.integers(1, 5))
def test_elements_and_members_are_counted_exactly_in_chunks_of_any_size(value: object, size: int) -> None:
    body = orjson.dumps(value)
    counted_shape = Shape()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shape, "CHUNK_BYTES", size)
        body_chunks = list(chunks(body))
    assert b"".join(body_chunks) == body
    for chunk in body_chunks:
        counted_shape.add(chunk)
    assert (counted_shape.outer, counted_shape.inner) == (commas(value, 0), commas(value, 1))


async def decode(kind: bytes, body: bytes, reservations: list[int], **source: Any) -> int:
    request = EventRequest([(b"content-type", kind)], body, 0, reservations.append)
    formats = PipeFormats.of("p", pipe("p", **source).source)
    return len(await decode_request(request, formats, LIMITS, allow_plain_json=True))


def members(count: int) -> bytes:
    return b"{" + b",".join(b'"a%d":1' % number for number in range(count)) + b"}"


EVENT = b'{"specversion":"1.0","id":"%d","source":"/s","type":"t"}'


@pytest.mark.parametrize(
    ("kind", "body", "detail"),
    [
        (PLAIN, b"[" + b"{}," * 50_000 + b"{}]", "too many events; the limit is 1000"),
        (PLAIN, b"[" + b"1," * 50_000 + b"1]", "too many events; the limit is 1000"),
        (LINES, b"{}\n" * 50_000, "too many events; the limit is 1000"),
        (BATCH, b"[" + b"{}," * 50_000 + b"{}]", "too many events; the limit is 1000"),
        (
            BATCH,
            b"[" + b",".join(EVENT % number for number in range(1001)) + b"]",
            "too many events; the limit is 1000",
        ),
        (BATCH, b"[" + members(16_002) + b"]", "more than 16000 attributes"),
        (ONE, members(16_002), "more than 16000 attributes"),
        (PLAIN, b'{"a":[' + b"[]," * 50_000 + b"1]}", "bytes; the limit of an event is 100000"),
        (LINES, b'{"a":[' + b"[]," * 50_000 + b"1]}", "bytes; the limit of an event is 100000"),
        (ONE, EVENT[:-1] % 1 + b',"data":[' + b"[]," * 50_000 + b"1]}", "bytes; the limit of an event"),
    ],
)
async def test_what_is_too_large_is_refused_before_it_is_decoded(
    kind: bytes, body: bytes, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode_calls: list[int] = []
    original_decode = json_slices._decode

    def counted_decode(decoder: Any, text: Any) -> Any:
        decode_calls.append(1)
        return original_decode(decoder, text)

    monkeypatch.setattr(json_slices, "_decode", counted_decode)
    with pytest.raises(Problem) as caught:
        await decode(kind, body, [])
    assert caught.value.status == 413
    assert detail in caught.value.detail
    if "limit of an event" not in detail:
        assert not decode_calls


@pytest.mark.parametrize(
    ("kind", "body", "events"),
    [
        (PLAIN, b"[" + b",".join([b'{"a":[1,2,3]}'] * 1000) + b"]", 1000),
        (PLAIN, b"[" + b",".join([members(20)] * 1000) + b"]", 1000),
        (LINES, b" \r\n\n".join([b'{"a":[1,2,3]}'] * 1000), 1000),
        (BATCH, b"[" + b",".join(EVENT % number for number in range(1000)) + b"]", 1000),
        (LINES, b"\n" * 1_000_000 + b"{}", 1),
        (ONE, EVENT[:-1] % 1 + b',"data":[' + b"1," * 40_000 + b"1]}", 1),
    ],
)
async def test_what_is_within_the_limits_is_accepted_and_its_memory_reserved(
    kind: bytes, body: bytes, events: int
) -> None:
    reservations: list[int] = []
    assert await decode(kind, body, reservations) == events
    assert sum(reservations) >= 1000 * events * (kind != ONE)


async def test_a_reservation_that_is_refused_refuses_the_request() -> None:
    def refuse(_: int) -> None:
        raise Problem(503, "no memory")

    request = EventRequest([(b"content-type", PLAIN)], b"[{},{}]", 0, refuse)
    with pytest.raises(Problem, match="no memory"):
        await decode_request(request, PipeFormats.of("p", pipe("p").source), LIMITS, allow_plain_json=True)


async def test_others_get_their_turn_while_a_large_body_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_module, "_TURN_S", 0.0)
    monkeypatch.setattr(request_module, "_LARGE_BYTES", 1000)
    body = b"[" + b",".join([b'{"a":' + b"[" * 60 + b"]" * 60 + b"}"] * 1000) + b"]"
    loop_turns = 0

    async def count() -> None:
        nonlocal loop_turns
        while True:
            loop_turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(count())
    await decode(PLAIN, body, [])
    task.cancel()
    assert loop_turns >= 1000


async def test_declared_fields_are_read_without_decoding_the_rest() -> None:
    body = b'{"big":' + b"[" * 50 + b"]" * 50 + b',"order":{"more":[[]],"id":"x\\u0041"},"n":1e999}'
    assert await decode(PLAIN, body, [], id="order.id") == 1
    with pytest.raises(Problem) as caught:
        await decode(PLAIN, body, [], id="order.more")
    assert caught.value.status == 422
    with pytest.raises(Problem) as caught:
        await decode(PLAIN, body, [], id="big.id")
    assert "missing or empty" in str(caught.value.members)


def test_long_values_are_not_kept_in_caches() -> None:
    long_value = b"a" * 100_000
    references = sys.getrefcount(long_value)
    assert attributes.is_uri_like(long_value)
    for parse in (media_type.media_type, media_type.is_json, media_type.is_utf8):
        parse(long_value)
    assert sys.getrefcount(long_value) == references
