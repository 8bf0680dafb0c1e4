"""Invalid requests get an error response that names the error, never 500, and nothing is written."""

from typing import Any

import aiohttp
import orjson
import pytest
from tests.support.ingest.ingest_harness import KEY, Ingest, Stream

BEARER = {"authorization": f"Bearer {KEY}"}
CE = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/test", "ce-type": "test"}
PLAIN = "/v1/pipes/flights/events"
JSON = "application/json"
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
LINES = "application/x-ndjson"
EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def structured(**changes: Any) -> bytes:
    return orjson.dumps(EVENT | changes)


CASES = [
    # name, path, content type, body, status, part of the answer
    ("invalid json", PLAIN, JSON, b'{"a":', 400, "not JSON"),
    ("invalid json in lines", PLAIN, LINES, b'{"a":1}\n{"a"\n{"a":2}', 400, '"index":1'),
    ("NaN", PLAIN, JSON, b'{"a":NaN}', 400, "not JSON"),
    ("infinity", PLAIN, JSON, b'{"a":-Infinity}', 400, "not JSON"),
    ("deep", PLAIN, JSON, b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", 400, "nested"),
    ("a little too deep", PLAIN, JSON, b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", 400, "64 levels"),
    (
        "deep event data",
        "/v1/events",
        STRUCTURED,
        structured()[:-1] + b',"data":' + b"[" * 65 + b"]" * 65 + b"}",
        400,
        "64",
    ),
    ("deep line", PLAIN, LINES, b'{"a":1}\n{"a":' + b"[" * 9000 + b"]" * 9000 + b"}", 400, '"index":1'),
    ("10 MB event", PLAIN, JSON, b'{"a":"' + b"x" * 10_000_000 + b'"}', 413, "exceeds"),
    (
        "2 MB event",
        PLAIN,
        JSON,
        b'{"a":"' + b"x" * 2_000_000 + b'"}',
        413,
        "the limit of an event is 1048576",
    ),
    ("2 MB event among others", PLAIN, LINES, b'{}\n{"a":"' + b"x" * 2_000_000 + b'"}\n{}', 413, '"index":1'),
    ("too many events", PLAIN, JSON, b"[" + b"{}," * 10_000 + b"{}]", 413, "the limit is 10000"),
    ("no content type", PLAIN, None, b"{}", 415, "content type"),
    ("wrong content type", PLAIN, "text/plain", b"{}", 415, "content type"),
    ("broken content type", PLAIN, "json", b"{}", 415, "content type"),
    ("no cloudevent", "/v1/events", JSON, b"{}", 415, "/v1/pipes/"),
    ("avro cloudevent", "/v1/events", "application/cloudevents+avro", b"", 415, "JSON"),
    ("invalid utf-8", PLAIN, JSON, b'{"a":"\xff"}', 400, "UTF-8"),
    ("invalid utf-8 line", PLAIN, LINES, b'{}\n{"a":"\xc3"}', 400, '"index":1'),
    ("invalid utf-8 event", "/v1/events", STRUCTURED, structured().replace(b'"1"', b'"\xfe"'), 400, "UTF-8"),
    ("null byte in json", PLAIN, JSON, b'{"a":"\x00"}', 400, "not JSON"),
    ("null byte in an attribute", "/v1/events", STRUCTURED, structured(id="a\0b"), 400, "control"),
    ("lone surrogate", PLAIN, JSON, b'{"a":"\\ud800"}', 400, "half of a surrogate pair"),
    ("latin-1", PLAIN, JSON + "; charset=latin-1", '{"a":"é"}'.encode(), 415, "UTF-8"),
    ("latin-1 event", "/v1/events", STRUCTURED + '; charset="ISO-8859-1"', structured(), 415, "UTF-8"),
    ("utf-16", PLAIN, JSON, "{}".encode("utf-16"), 400, "UTF-8"),
    (
        "byte order mark within",
        PLAIN,
        LINES,
        b"{}\n\xef\xbb\xbf{}",
        400,
        '"index":1,"detail":"not JSON: it begins with a byte',
    ),
    ("byte order mark of UTF-16", PLAIN, JSON, b"\xff\xfe{\x00}\x00", 400, "UTF-16"),
    ("only empty lines", PLAIN, LINES, b"\n\r\n\n", 400, "all of its lines are empty"),
    ("bad line after empty ones", PLAIN, LINES, b"\n\n{}\n\n{", 400, '"line":5'),
    (
        "bad JSON in base64",
        "/v1/events",
        STRUCTURED,
        structured(datacontenttype=JSON, data_base64="eyJiIjoy"),
        400,
        "not JSON",
    ),
    ("id too long", "/v1/events", STRUCTURED, structured(id="x" * 10_000), 422, "the limit is 512"),
    ("empty body", PLAIN, JSON, b"", 400, "not JSON"),
    ("scalar", PLAIN, JSON, b"3", 400, "object"),
    ("array of scalars", PLAIN, JSON, b'[{}, 3, "x"]', 400, '"index":2'),
    ("batch that is no array", "/v1/events", BATCH, b"{}", 400, "array"),
    ("batch of scalars", "/v1/events", BATCH, b"[1]", 400, "object"),
    ("structured array", "/v1/events", STRUCTURED, b"[]", 400, "object"),
    (
        "missing fields",
        "/v1/events",
        STRUCTURED,
        b'{"specversion":"1.0"}',
        400,
        "id and source and type are missing",
    ),
    ("empty id", "/v1/events", STRUCTURED, structured(id=""), 400, "empty"),
    ("number as id", "/v1/events", STRUCTURED, structured(id=1), 400, "id must be a string"),
    ("old version", "/v1/events", STRUCTURED, structured(specversion="0.3"), 400, "1.0"),
    ("bad time", "/v1/events", STRUCTURED, structured(time="2026-13-01T00:00:00Z"), 400, "RFC 3339"),
    ("time without zone", "/v1/events", STRUCTURED, structured(time="2026-01-01T00:00:00"), 400, "RFC 3339"),
    ("bad source", "/v1/events", STRUCTURED, structured(source="a b"), 400, "URI"),
    ("bad schema", "/v1/events", STRUCTURED, structured(dataschema="relative"), 400, "URI"),
    ("bad attribute name", "/v1/events", STRUCTURED, structured(Upper_x="1"), 400, "lower-case"),
    ("float extension", "/v1/events", STRUCTURED, structured(x=1.5), 400, "integer"),
    ("large extension", "/v1/events", STRUCTURED, structured(x=2**31), 400, "32-bit"),
    ("object extension", "/v1/events", STRUCTURED, structured(x={}), 400, "32-bit"),
    (
        "two kinds of data",
        "/v1/events",
        STRUCTURED,
        structured(data=1, data_base64="AA=="),
        400,
        "either data or data_base64",
    ),
    ("bad base64", "/v1/events", STRUCTURED, structured(data_base64="*"), 400, "base64"),
    (
        "text data as object",
        "/v1/events",
        STRUCTURED,
        structured(datacontenttype="text/plain", data={}),
        400,
        "string",
    ),
    ("bad media type", "/v1/events", STRUCTURED, structured(datacontenttype="json"), 400, "media type"),
    (
        "duplicate ids",
        "/v1/events",
        BATCH,
        b"[" + structured() + b"," + structured(id="2") + b"," + structured() + b"]",
        400,
        '"index":2,"detail":"the same source and id as the event at index 0',
    ),
    ("not gzip", PLAIN, JSON, b"{}", 400, "gzip"),
    ("unknown coding", PLAIN, JSON, b"{}", 415, "gzip or zstd"),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
async def test_bad_input_is_refused_with_a_reason(case: Any, running_ingest: Ingest) -> None:
    name, path, content_type, body, status, detail = case
    headers = BEARER | ({"content-type": content_type} if content_type else {})
    headers |= {"not gzip": {"content-encoding": "gzip"}, "unknown coding": {"content-encoding": "br"}}.get(
        name, {}
    )
    async with (
        aiohttp.ClientSession(running_ingest.url) as client,
        client.post(path, data=body, headers=headers, skip_auto_headers=["content-type"]) as answer,
    ):
        text = await answer.text()
        assert (answer.status, answer.content_type) == (status, "application/problem+json"), text
        assert detail in text
        assert orjson.loads(text)["status"] == status


BAD_HEADERS = [
    ({"ce-id": "x", "ce-source": "/s", "ce-type": "t"}, "specversion is missing"),
    (CE | {"ce-time": "yesterday"}, "RFC 3339"),
    (CE | {"ce-subject": ""}, "subject"),
    (CE | {"ce-x_y": "1"}, "lower-case"),
    (CE | {"ce-data": "1"}, "lower-case"),
    (CE | {"ce-datacontenttype": "text/plain"}, "repeated or not allowed"),
    (CE | {"ce-id": "%ff"}, "UTF-8"),
    (CE | {"ce-id": "a%00b"}, "control"),
    (CE | {"content-type": "nonsense"}, "media type"),
]


@pytest.mark.parametrize(("headers", "detail"), BAD_HEADERS, ids=[detail for _, detail in BAD_HEADERS])
async def test_bad_attributes_in_headers_are_refused(
    headers: dict[str, str], detail: str, running_ingest: Ingest
) -> None:
    headers = BEARER | {"content-type": "text/plain"} | headers
    async with (
        aiohttp.ClientSession(running_ingest.url) as client,
        client.post("/v1/events", data=b"x", headers=headers) as answer,
    ):
        assert answer.status == 400
        assert detail in await answer.text()


async def test_invalid_json_is_refused_in_binary_mode_too(running_ingest: Ingest) -> None:
    async with aiohttp.ClientSession(
        running_ingest.url, headers=BEARER | CE | {"content-type": JSON}
    ) as client:
        for body in (b"{", b"NaN", b'"\xff"', b"[" * 100 + b"]" * 100):
            async with client.post("/v1/events", data=body) as answer:
                assert answer.status == 400


async def test_afterwards_raw_is_empty_and_ingest_accepts_events(
    running_ingest: Ingest, stream: Stream
) -> None:
    assert await stream.raw() == []
    async with (
        aiohttp.ClientSession(running_ingest.url, headers=BEARER) as client,
        client.post(PLAIN, json={"still": "here"}) as answer,
    ):
        assert answer.status == 202
    assert len(await stream.raw()) == 1
    assert running_ingest.readyz()[0] == 200
    assert "request-failed" not in running_ingest.log.read_text()
