"""Responses of a real ingest process over HTTP, with a real Kafka."""

import base64
import gzip
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import psutil
import pytest
from tests.support.ingest.ingest_harness import KEY, Ingest, Stream
from tests.support.openapi_documents import require_described

from hifi.record.fields import fields
from hifi.record.identity import identity
from hifi_ingest.http.openapi import DOCUMENT

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DESCRIBED = orjson.loads(DOCUMENT)
BEARER = {"authorization": f"Bearer {KEY}"}
CE = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/test", "ce-type": "test"}
JSON = {"content-type": "application/json"}
STRUCTURED = {"content-type": "application/cloudevents+json"}
BATCH = {"content-type": "application/cloudevents-batch+json"}
LINES = {"content-type": "application/x-ndjson"}
PLAIN = "/v1/pipes/flights/events"


@pytest.fixture
async def client(running_ingest: Ingest) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(running_ingest.url) as session:
        yield session


async def post(client: aiohttp.ClientSession, path: str, body: object, *headers: dict[str, str]) -> Any:
    """Status, body and headers of the response; a body other than bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    all_headers = {name: value for header_set in headers for name, value in header_set.items()}
    async with client.post(
        path, data=data, headers=all_headers, skip_auto_headers=["content-type"]
    ) as answer:
        assert answer.content_type == (
            "application/json" if answer.status == 202 else "application/problem+json"
        )
        content = await answer.json(content_type=None)
        require_described(DESCRIBED, "POST", path, answer.status, content)
        return answer.status, content, answer.headers


async def raw_record(stream: Stream, event_id: str) -> Any:
    """The record of an event on `raw`."""
    (record,) = [
        candidate for candidate in await stream.raw() if dict(candidate.headers)["ce_id"] == event_id.encode()
    ]
    return record


async def test_events_carry_the_trace_of_their_request_or_their_own(
    client: aiohttp.ClientSession, stream: Stream
) -> None:
    trace = {"traceparent": f"00-{7:032x}-00f067aa0ba902b7-01", "tracestate": "a=1"}
    trace_of_event = f"00-{8:032x}-00f067aa0ba902b7-01"
    event = {"specversion": "1.0", "source": "/t", "type": "t"}
    batch = [event | {"id": "traced-1"}, event | {"id": "traced-2", "traceparent": trace_of_event}]
    assert (await post(client, "/v1/events", batch, BEARER, BATCH, trace))[0] == 202
    _, answer, _ = await post(client, PLAIN, {"a": 1}, BEARER, JSON, trace)
    for name, parent, state in [
        ("traced-1", trace["traceparent"], b"a=1"),
        ("traced-2", trace_of_event, None),
        (answer["ids"][0], trace["traceparent"], b"a=1"),
    ]:
        headers = dict((await raw_record(stream, name)).headers)
        assert (headers["ce_traceparent"], headers.get("ce_tracestate")) == (parent.encode(), state)


async def test_a_binary_event_is_on_raw_byte_for_byte_when_202_comes(
    client: aiohttp.ClientSession, stream: Stream
) -> None:
    body = b'{ "a" : 1.10, "b": 12345678901234567890123 }\n'
    event_headers = CE | {"ce-id": "bin 1%25", "ce-subject": "N1", "ce-comexampleext": "caf%C3%A9"}
    status, answer, _ = await post(client, "/v1/events", body, BEARER, JSON, event_headers)
    assert (status, answer) == (202, {"accepted": 1, "ids": ["bin 1%"]})
    record = await raw_record(stream, "bin 1%")
    headers = fields(record.headers)
    assert record.value == body
    assert [name for name, _ in record.headers[:2]] == ["hifi", "hifi_hop"]
    assert record.key == b"N1"
    assert headers["ce_comexampleext"] == "café".encode()
    assert headers["content-type"] == b"application/json"
    event = identity(record.headers)
    assert (event.pipe, event.minute) == ("flights", event.accepted_us // 60_000_000)
    assert abs(record.timestamp * 1000 - int(headers["hifi_in"])) < 5_000_000


async def test_data_other_than_json_is_unchanged(client: aiohttp.ClientSession, stream: Stream) -> None:
    body = bytes(range(256))
    status, _, _ = await post(
        client, "/v1/events", body, BEARER, CE | {"ce-id": "bytes"}, {"content-type": "image/png"}
    )
    assert status == 202
    assert (await raw_record(stream, "bytes")).value == body


async def test_a_structured_event_keeps_its_data_verbatim(
    client: aiohttp.ClientSession, stream: Stream
) -> None:
    data = b'{"big": 123456789012345678901234567890, "x":1.10,\n "e":"\\u00e9"}'
    body = b'{"specversion":"1.0","id":"s1","source":"/s","type":"t","n":7,"flag":true,"data":' + data + b"}"
    status, _, _ = await post(client, "/v1/events", body, BEARER, STRUCTURED)
    assert status == 202
    record = await raw_record(stream, "s1")
    assert record.value == data
    headers = dict(record.headers)
    assert (headers["ce_n"], headers["ce_flag"], headers["content-type"]) == (
        b"7",
        b"true",
        b"application/json",
    )


async def test_base64_data_is_decoded(client: aiohttp.ClientSession, stream: Stream) -> None:
    body = {
        "specversion": "1.0",
        "id": "b64",
        "source": "/s",
        "type": "t",
        "data_base64": base64.b64encode(b"\0\xff").decode(),
    }
    assert (await post(client, "/v1/events", body, BEARER, STRUCTURED))[0] == 202
    assert (await raw_record(stream, "b64")).value == b"\0\xff"


async def test_a_batch_is_taken_whole(client: aiohttp.ClientSession, stream: Stream) -> None:
    events = [
        {
            "specversion": "1.0",
            "id": f"batch{n}",
            "source": "/s",
            "type": "t",
            "subject": f"k{n % 7}",
            "data": {"n": n},
        }
        for n in range(250)
    ]
    status, answer, _ = await post(client, "/v1/events", events, BEARER, BATCH)
    assert (status, answer["accepted"]) == (202, 250)
    assert answer["ids"] == [event["id"] for event in events]
    records = [
        candidate for candidate in await stream.raw() if dict(candidate.headers)["ce_id"].startswith(b"batch")
    ]
    assert len(records) == 250
    for key in {record.key for record in records}:
        records_of_key = [record for record in records if record.key == key]
        assert len({record.partition for record in records_of_key}) == 1
        assert [orjson.loads(record.value)["n"] for record in records_of_key] == sorted(
            orjson.loads(record.value)["n"] for record in records_of_key
        )


async def test_one_bad_event_of_a_batch_refuses_all_and_every_bad_index_is_named(
    client: aiohttp.ClientSession, stream: Stream
) -> None:
    valid_event = {"specversion": "1.0", "source": "/s", "type": "t"}
    events = [
        valid_event | {"id": "whole0"},
        valid_event,
        valid_event | {"id": "whole2", "specversion": "0.3"},
        valid_event | {"id": 3},
    ]
    status, answer, _ = await post(client, "/v1/events", events, BEARER, BATCH)
    assert status == 400
    assert [refusal["index"] for refusal in answer["events"]] == [1, 2, 3]
    assert answer["bad"] == 3
    assert "id is missing" in answer["events"][0]["detail"]
    assert answer["events"][1]["pointer"] == "/specversion"
    assert not [record for record in await stream.raw() if dict(record.headers)["ce_id"].startswith(b"whole")]


async def test_an_empty_batch_is_no_error(client: aiohttp.ClientSession) -> None:
    assert (await post(client, "/v1/events", [], BEARER, BATCH))[:2] == (202, {"accepted": 0, "ids": []})


async def test_plain_objects_arrays_and_lines_become_events(
    client: aiohttp.ClientSession, stream: Stream
) -> None:
    bodies = [
        (b'{"p": 1.0}', JSON, 1),
        (b'[{"p": 2}, {"p":3 }]', JSON, 2),
        (b'{"p":4}\r\n\n{"p": 5}', LINES, 2),
    ]
    ids = []
    for body, headers, count in bodies:
        status, answer, _ = await post(client, PLAIN, body, BEARER, headers)
        assert (status, answer["accepted"]) == (202, count)
        ids += answer["ids"]
    records = {dict(record.headers)["ce_id"].decode(): record for record in await stream.raw()}
    assert [records[event_id].value for event_id in ids] == [
        b'{"p": 1.0}',
        b'{"p": 2}',
        b'{"p":3 }',
        b'{"p":4}',
        b'{"p": 5}',
    ]
    first_headers = dict(records[ids[0]].headers)
    assert first_headers["ce_type"] == b"hifi.event"
    assert first_headers["ce_source"] == b"/v1/pipes/flights/events"
    assert first_headers["ce_time"].endswith(b"Z")
    assert len(set(ids)) == 5


async def test_declared_fields_give_id_time_and_key(client: aiohttp.ClientSession, stream: Stream) -> None:
    order = {"order": {"id": 17}, "at": "2020-02-29T12:00:00+01:00", "customer": "C1"}
    key = {"authorization": "Bearer orders-key"}
    status, answer, _ = await post(client, "/v1/pipes/orders/events", order, key, JSON)
    assert (status, answer["ids"]) == (202, ["17"])
    record = await raw_record(stream, "17")
    headers = fields(record.headers)
    assert (record.key, headers["ce_partitionkey"]) == (b"C1", b"C1")
    assert headers["ce_time"] == b"2020-02-29T12:00:00+01:00"
    assert int(headers["hifi_minute"]) == int(headers["hifi_accepted"]) // 60_000_000, (
        "too old to decide its minute"
    )


async def test_a_missing_declared_id_is_422_with_its_pointer(client: aiohttp.ClientSession) -> None:
    key = {"authorization": "Bearer orders-key"}
    bodies: tuple[dict[str, Any], ...] = (
        {"order": {}},
        {"order": {"id": ""}},
        {"order": {"id": None}},
        {"order": {"id": [1]}},
    )
    for body in bodies:
        status, answer, _ = await post(client, "/v1/pipes/orders/events", body, key, JSON)
        assert (status, answer["events"][0]["pointer"]) == (422, "/order/id")
    status, answer, _ = await post(
        client, "/v1/pipes/orders/events", {"order": {"id": "x"}, "at": "noon"}, key, JSON
    )
    assert (status, answer["events"][0]["pointer"]) == (422, "/at")


async def test_the_same_idempotency_key_and_content_give_the_same_ids(client: aiohttp.ClientSession) -> None:
    key = {"idempotency-key": '"try-1"'}
    first_ids = (await post(client, PLAIN, [{"a": 1}, {"a": 1}], BEARER, JSON, key))[1]["ids"]
    repeated_ids = (
        await post(client, PLAIN, [{"a": 1}, {"a": 1}], BEARER, JSON, {"idempotency-key": "try-1"})
    )[1]["ids"]
    other_ids = (await post(client, PLAIN, [{"a": 2}, {"a": 1}], BEARER, JSON, key))[1]["ids"]
    assert first_ids == repeated_ids
    assert len(set(first_ids)) == 2
    assert first_ids[0] != other_ids[0]
    assert (await post(client, PLAIN, {"a": 1}, BEARER, JSON, {"idempotency-key": "a b"}))[0] == 400


async def test_gzip_and_zstd_bodies_are_accepted(client: aiohttp.ClientSession) -> None:
    body = orjson.dumps([{"n": n} for n in range(1000)])
    for coding, compress in (("gzip", gzip.compress), ("zstd", zstd.compress)):
        status, answer, _ = await post(
            client, PLAIN, compress(body), BEARER, JSON, {"content-encoding": coding}
        )
        assert (status, answer["accepted"]) == (202, 1000)


async def test_a_compression_bomb_is_refused_without_using_memory(
    client: aiohttp.ClientSession, running_ingest: Ingest
) -> None:
    rss_before = rss(running_ingest)
    for coding, body in (
        ("gzip", gzip.compress(b" " * 300_000_000, 9)),
        ("zstd", zstd.compress(b" " * 300_000_000)),
    ):
        status, answer, _ = await post(client, PLAIN, body, BEARER, JSON, {"content-encoding": coding})
        assert status == 413
        assert "expands" in answer["detail"]
    assert rss(running_ingest) - rss_before < 60_000_000


def rss(running_ingest: Ingest) -> int:
    return int(psutil.Process(running_ingest.process.pid).memory_info().rss)


async def test_the_write_key_decides_and_pipe_names_do_not_leak(client: aiohttp.ClientSession) -> None:
    basic = {"authorization": "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()}
    assert (await post(client, PLAIN, {}, basic, JSON))[0] == 202
    for wrong_key in (
        {},
        {"authorization": "Bearer nope"},
        {"authorization": "Basic !"},
        {"authorization": f"Token {KEY}"},
    ):
        for path in ("/v1/events", PLAIN, "/v1/pipes/none/events"):
            status, _, headers = await post(client, path, {}, wrong_key, JSON)
            assert (status, "Bearer" in headers["www-authenticate"]) == (401, True)
    answers = [
        (await post(client, f"/v1/pipes/{name}/events", {}, BEARER, JSON))[:2] for name in ("orders", "none")
    ]
    assert answers[0] == answers[1]
    assert answers[0][0] == 404


async def test_other_methods_and_paths_are_problems_too(client: aiohttp.ClientSession) -> None:
    for method, path, status in (
        ("GET", "/v1/events", 405),
        ("PUT", PLAIN, 405),
        ("DELETE", "/openapi.json", 405),
        ("GET", "/nothing", 404),
        ("POST", "/", 404),
    ):
        async with client.request(method, path) as answer:
            assert (answer.status, answer.content_type) == (status, "application/problem+json")
            assert (await answer.json(content_type=None))["status"] == status
            assert ("allow" in answer.headers) == (status == 405)


async def test_the_events_port_shows_health_and_the_openapi_document(client: aiohttp.ClientSession) -> None:
    for path in ("/healthz", "/readyz", "/openapi.json"):
        async with client.get(path) as answer:
            assert (answer.status, answer.content_type) == (200, "application/json")
            assert await answer.json()


async def test_pipes_that_take_only_plain_json_say_so(client: aiohttp.ClientSession) -> None:
    key = {"authorization": "Bearer strict-key"}
    assert (await post(client, "/v1/events", {}, key, JSON, CE))[0] == 415
    assert (await post(client, "/v1/pipes/strict/events", {}, key, JSON))[0] == 202
