"""The response to any request is 202 or problem details, never 500."""

import asyncio
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ingest.ingest_app import PAGE, PAGE_KEY, PROGRAM_KEY, app
from tests.support.ingest.ingest_harness import KEY, FakeProducer, Ingest

from hifi_ingest.http.app import App


async def call(
    asgi_app: App, method: str, path: str, headers: list[tuple[bytes, bytes]], chunks: list[bytes]
) -> tuple[int, dict[bytes, bytes], bytes]:
    request_messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    request_messages.append({"type": "http.request", "body": b"", "more_body": False})
    sent_messages: list[Any] = []

    async def receive() -> Any:
        return request_messages.pop(0)

    async def send(message: Any) -> None:
        sent_messages.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": headers,
        "query_string": b"",
        "root_path": "",
    }
    await asgi_app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent_messages[1:])
    return sent_messages[0]["status"], dict(sent_messages[0]["headers"]), body


TYPES = [
    b"application/json",
    b"application/cloudevents+json",
    b"application/cloudevents-batch+json",
    b"application/x-ndjson",
    b"text/plain",
    b"application/cloudevents+json; charset=utf-8",
    b"APPLICATION/JSON",
]
PIECES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b'"',
    b"\\",
    b"\n",
    b"\0",
    b"\xff",
    b"1e999",
    b"NaN",
    b"null",
    b"-0",
    b"9" * 30,
    b'"id"',
    b'"source"',
    b'"type"',
    b'"specversion"',
    b'"1.0"',
    b'"time"',
    b'"data"',
    b'"data_base64"',
    b'"a"',
    b'{"b":1}',
    b'{"specversion":"1.0","id":"1","source":"s","type":"t"}',
    b'{"id":"x","time":"2026-01-01T00:00:00Z"}',
    b"\\ud800",
    b'"\\u0000"',
    b'"\xc3\xa9"',
]
BODY = st.binary(max_size=50) | st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)
HEADER = st.tuples(
    st.sampled_from(
        [
            b"ce-id",
            b"ce-source",
            b"ce-type",
            b"ce-specversion",
            b"ce-time",
            b"ce-x",
            b"ce-",
            b"ce-data",
            b"idempotency-key",
            b"content-encoding",
            b"content-length",
            b"content-type",
            b"authorization",
            b"x",
        ]
    ),
    st.binary(max_size=20)
    | st.sampled_from([b"1.0", b"gzip", b"zstd", b"7", b"2026-01-01T00:00:00Z", *TYPES]),
)


@pytest.mark.slow
@settings(max_examples=200)
@given(
    st.sampled_from(
        ["/v1/events", "/v1/pipes/flights/events", "/v1/pipes/orders/events", "/v1/pipes//events"]
    ),
    st.sampled_from(["POST", "POST", "POST", "POST", "GET", "HEAD"]),
    st.sampled_from([KEY, KEY, KEY + "2", "wrong"]),
    st.sampled_from(TYPES),
    st.lists(HEADER, max_size=6),
    st.lists(BODY, max_size=3),
)
def test_the_app_answers_anything(
    path: str, method: str, key: str, kind: bytes, headers: list[tuple[bytes, bytes]], chunks: list[bytes]
) -> None:
    async def run() -> None:
        producer = FakeProducer({})
        all_headers = [(b"authorization", b"Bearer " + key.encode()), (b"content-type", kind), *headers]
        # An HTTP server refuses a content-length that is none before the app sees it.
        all_headers = [
            header for header in all_headers if header[0] != b"content-length" or header[1].isdigit()
        ]
        status, answer, body = await call(app(producer), method, path, all_headers, chunks)
        assert status < 500
        assert (b"content-length", b"%d" % len(body)) in answer.items() or method == "HEAD"
        sent_count = sum(map(len, producer.sent.values()))
        if status == 202:
            assert orjson.loads(body)["accepted"] == sent_count
        else:
            assert sent_count == 0
            assert answer[b"content-type"] == b"application/problem+json"
            assert method == "HEAD" or orjson.loads(body)["status"] == status

    asyncio.run(run())


async def test_a_client_that_disconnects_during_a_request_leaves_no_memory_reserved() -> None:
    asgi_app = app(producer := FakeProducer({}))
    request_messages = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent_messages: list[Any] = []

    async def receive() -> Any:
        return request_messages.pop(0)

    async def send(message: Any) -> None:
        sent_messages.append(message)

    headers = [
        (b"authorization", b"Bearer " + KEY.encode()),
        (b"content-type", b"application/json"),
        (b"content-length", b"10"),
    ]
    scope = {"type": "http", "method": "POST", "path": "/v1/pipes/flights/events", "headers": headers}
    await asgi_app(scope, receive, send)
    assert (sent_messages, producer.sent) == ([], {})
    assert asgi_app.context is not None
    assert asgi_app.context.body_memory.used_bytes == 0


@pytest.mark.parametrize(
    "chunk",
    [
        b"\0" * 100,
        b"GET\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
    ids=["nulls", "no target", "negative length", "bad chunk", "tls"],
)
async def test_bytes_that_are_not_http_get_problem_details_too(chunk: bytes, running_ingest: Ingest) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", running_ingest.port)
    writer.write(chunk)
    async with asyncio.timeout(15):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 4")
    assert b"application/problem+json" in answer


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_a_request_whose_body_has_no_length_is_refused(version: bytes, running_ingest: Ingest) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", running_ingest.port)
    lines = [
        b"POST /v1/pipes/flights/events HTTP/" + version,
        b"host: x",
        b"authorization: Bearer " + KEY.encode(),
        b"content-type: application/json",
    ]
    writer.write(b"\r\n".join([*lines, b"", b'{"lost": true}']))
    async with asyncio.timeout(15):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 411 ")
    assert b"Content-Length" in answer


async def test_the_gate_refuses_what_the_app_would_and_lets_the_rest_pass() -> None:
    asgi_app = app(FakeProducer({}))
    requests = asgi_app.context.admission.requests if asgi_app.context else None
    assert requests is not None

    def gate(target: bytes, key: str = KEY, method: bytes = b"POST") -> tuple[int | None, dict[str, Any]]:
        headers = [(b"authorization", b"Bearer " + key.encode())]
        scope: dict[str, Any] = {"headers": headers, "state": {}}
        answer = asgi_app.refuse(scope, method, target)
        return (None if answer is None else answer[0]), scope

    assert gate(b"/v1/events", "wrong")[0] == 401
    assert gate(b"/v1/pipes/orders/events")[0] == 404
    assert requests.in_progress == 0
    for accepted_target in (b"/healthz", b"/v1/pipes/fl%69ghts/events", b"\xff"):
        assert gate(accepted_target) == (
            None,
            {"headers": [(b"authorization", b"Bearer " + KEY.encode())], "state": {}},
        )
    assert gate(b"/v1/events", "wrong", b"GET")[0] is None
    status, scope = gate(b"/v1/events?x=1")
    assert status is None
    assert requests.in_progress == 1, "it counts until the app is called"
    body = orjson.dumps({"n": 1})
    scope |= {"type": "http", "method": "POST", "path": "/v1/pipes/flights/events"}
    scope["headers"] = [*scope["headers"], (b"content-type", b"application/json")]
    sent_messages: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent_messages.append(message)

    await asgi_app(scope, receive, send)
    assert requests.in_progress == 0
    assert sent_messages[0]["status"] < 500


async def response_to(
    key: str, *headers: tuple[bytes, bytes], method: str = "POST", path: str = "/v1/pipes/flights/events"
) -> tuple[int, dict[bytes, bytes]]:
    status, answer_headers, _ = await call(
        app(FakeProducer({})),
        method,
        path,
        [
            (b"authorization", f"Bearer {key}".encode()),
            (b"content-type", b"application/json"),
            (b"content-length", b"2"),
            *headers,
        ],
        [b"{}"],
    )
    return status, answer_headers


@pytest.mark.parametrize(
    ("key", "origin", "expected"),
    [
        (PROGRAM_KEY, None, 202),
        (PROGRAM_KEY, "https://other.example", 202),
        (PAGE_KEY, PAGE, 202),
        *(
            (PAGE_KEY, origin, 403)
            for origin in (
                None,
                "null",
                "",
                "http://shop.example",
                PAGE + ":8443",
                PAGE + "/",
                "https://shop.exampl",
            )
        ),
        (KEY, None, 202),
        (KEY, PAGE, 202),
        ("unknown-key" * 4, PAGE, 401),
    ],
)
async def test_a_key_for_pages_is_for_those_only(key: str, origin: str | None, expected: int) -> None:
    headers = [] if origin is None else [(b"origin", origin.encode())]
    status, answer_headers = await response_to(key, *headers)
    assert status == expected
    allowed_origin = answer_headers.get(b"access-control-allow-origin")
    assert allowed_origin == (PAGE.encode() if origin == PAGE else None)
    assert (await response_to(key, *headers, path="/v1/pipes/orders/events"))[0] == (
        401 if key.startswith("unknown") else 404
    )


@pytest.mark.parametrize("origin", [PAGE, "https://other.example", "null"])
async def test_a_browser_is_told_which_pages_may_send(origin: str) -> None:
    requested_headers = (b"access-control-request-headers", b"authorization,content-type")
    status, answer_headers = await response_to(
        "", (b"origin", origin.encode()), requested_headers, method="OPTIONS"
    )
    if origin == PAGE:
        assert status == 200
        assert answer_headers[b"access-control-allow-origin"] == PAGE.encode()
        assert answer_headers[b"access-control-allow-headers"] == requested_headers[1]
        assert answer_headers[b"access-control-allow-methods"] == b"POST"
    else:
        assert (status, b"access-control-allow-origin" in answer_headers) == (405, False)


async def test_names_of_headers_that_are_none_are_not_repeated() -> None:
    for header_names in (b"a\r\nset-cookie: x=y", b"x" * 1001, b"*"):
        _, answer_headers = await response_to(
            "",
            (b"origin", PAGE.encode()),
            (b"access-control-request-headers", header_names),
            method="OPTIONS",
        )
        assert answer_headers[b"access-control-allow-headers"] == b""
