"""Requests that ingest refuses."""

import base64
import gzip
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import orjson

PLAIN: Final = "/v1/pipes/flights/events"
DECLARED: Final = "/v1/pipes/orders/events"
EVENTS: Final = "/v1/events"
JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
BINARY: Final = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
EVENT: Final = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
ORDER: Final = {"id": "1", "time": "2026-01-01T00:00:00Z", "a": {"b": "k"}}


class BadRequest(NamedTuple):
    """A request that is refused."""

    name: str
    path: str
    headers: dict[str, str]
    body: bytes
    method: str = "POST"


def _structured(**changes: Any) -> bytes:
    return orjson.dumps({name: value for name, value in (EVENT | changes).items() if value is not ...})


def bad_requests() -> Iterator[BadRequest]:
    """All of them; each has one fault."""
    yield from _bodies()
    yield from _attributes()
    yield from _headers()
    yield from _declared_fields()
    yield from _requests()


def _bodies() -> Iterator[BadRequest]:
    texts = {
        "empty": b"",
        "truncated object": b'{"a":',
        "truncated array": b"[{}",
        "trailing comma": b'{"a":1,}',
        "single quotes": b"{'a':1}",
        "comment": b'{"a":1} // x',
        "two objects": b"{}{}",
        "NaN": b'{"a":NaN}',
        "infinity": b'{"a":-Infinity}',
        "hexadecimal number": b'{"a":0x1}',
        "leading zero": b'{"a":01}',
        "not UTF-8": b'{"a":"\xff"}',
        "encoded surrogate": b'{"a":"\xed\xa0\x80"}',
        "escaped surrogate": b'{"a":"\\ud800"}',
        "null byte": b'{"a":"\x00"}',
        "raw line feed in a text": b'{"a":"\n"}',
        "bad escape": b'{"a":"\\x41"}',
        "UTF-16": "{}".encode("utf-16"),
        "nested too deeply": b'{"a":' + b"[" * 65 + b"]" * 65 + b"}",
        "number": b"3",
        "text": b'"a"',
        "null": b"null",
        "true": b"true",
    }
    for name, text in texts.items():
        yield BadRequest(f"JSON: {name}", PLAIN, {"content-type": JSON}, text)
        if text and b"\n" not in text:
            yield BadRequest(f"lines, the second: {name}", PLAIN, {"content-type": LINES}, b"{}\n" + text)
            body = _structured()[:-1] + b',"data":' + text + b"}"
            if name not in ("number", "text", "null", "true", "truncated array"):
                yield BadRequest(f"data of an event: {name}", EVENTS, {"content-type": STRUCTURED}, body)
    yield BadRequest("array with a number", PLAIN, {"content-type": JSON}, b"[{}, 3]")
    yield BadRequest("only empty lines", PLAIN, {"content-type": LINES}, b"\n\n")
    yield BadRequest("too many events", PLAIN, {"content-type": JSON}, b"[" + b"{}," * 50 + b"{}]")
    yield BadRequest("too many lines", PLAIN, {"content-type": LINES}, b"{}\n" * 51)
    yield BadRequest("body too large", PLAIN, {"content-type": JSON}, b'{"a":"' + b"x" * 100_000 + b'"}')
    for content_type, body in (
        (STRUCTURED, b"[]"),
        (BATCH, b"{}"),
        (BATCH, b"[1]"),
        (BATCH, b"[null]"),
        (STRUCTURED, b""),
    ):
        yield BadRequest(
            f"{content_type}: {body.decode() or 'empty'}", EVENTS, {"content-type": content_type}, body
        )
    repeated_events = b"[" + _structured() + b"," + _structured() + b"]"
    yield BadRequest("an id twice", EVENTS, {"content-type": BATCH}, repeated_events)
    for coding, body in {"gzip": b"{}", "zstd": b"{}", "br": b"{}", "deflate": b"{}"}.items():
        headers = {"content-type": JSON, "content-encoding": coding}
        yield BadRequest(f"content coding {coding}", PLAIN, headers, body)
    bomb = gzip.compress(b"[" + b" " * 1_000_000 + b"]")
    yield BadRequest("gzip bomb", PLAIN, {"content-type": JSON, "content-encoding": "gzip"}, bomb)
    truncated_gzip = gzip.compress(b'{"a": 1}')[:-4]
    yield BadRequest(
        "truncated gzip", PLAIN, {"content-type": JSON, "content-encoding": "gzip"}, truncated_gzip
    )


def _attributes() -> Iterator[BadRequest]:
    values: dict[str, list[Any]] = {
        "specversion": [..., "0.3", 1.0, None, ""],
        "id": [..., "", 1, None, "a\0b", "a\nb", "x" * 513],
        "source": [..., "", 1, None, "a b", "\x7f"],
        "type": [..., "", 1, None, "t\t", "x" * 4097],
        "subject": ["", 1, "\x01", []],
        "time": [
            "",
            1,
            "yesterday",
            "2026-13-01T00:00:00Z",
            "2026-01-01T00:00:00",
            "2026-02-30T00:00:00Z",
            "2026-01-01",
        ],
        "datacontenttype": ["", "json", 1, "text/", "a/b/c"],
        "dataschema": ["", "relative", 1, "a b"],
        "data_base64": ["*", 1, "AA=", [], "AA==="],
        "x": [1.5, 2**31, {}, [], "\x00"],
        "Upper": ["1"],
        "with_underscore": ["1"],
        "with-hyphen": ["1"],
        "x" * 300: ["1"],
        "": ["1"],
        "é": ["1"],
    }
    for name, bad_values in values.items():
        for value in bad_values:
            value_text = "missing" if value is ... else orjson.dumps(value).decode()
            label = f"attribute {name[:20]}: {value_text[:30]}"
            yield BadRequest(label, EVENTS, {"content-type": STRUCTURED}, _structured(**{name: value}))
            if len(value_text) < 20:
                body = b"[" + _structured(id="0") + b"," + _structured(**{name: value}) + b"]"
                yield BadRequest(f"second of a batch, {label}", EVENTS, {"content-type": BATCH}, body)
    double_data = _structured(data=1, data_base64="AA==")
    yield BadRequest("data and data_base64", EVENTS, {"content-type": STRUCTURED}, double_data)
    object_as_text = _structured(datacontenttype="text/plain", data={})
    yield BadRequest("object as text/plain", EVENTS, {"content-type": STRUCTURED}, object_as_text)
    no_json = _structured(datacontenttype=JSON, data_base64=base64.b64encode(b'{"b":').decode())
    yield BadRequest("data_base64 that is no JSON", EVENTS, {"content-type": STRUCTURED}, no_json)


def _headers() -> Iterator[BadRequest]:
    for name in BINARY:
        headers = {key: value for key, value in BINARY.items() if key != name} | {
            "content-type": "text/plain"
        }
        yield BadRequest(f"header {name}: missing", EVENTS, headers, b"x")
    for name, value in (
        ("ce-specversion", "2.0"),
        ("ce-id", ""),
        ("ce-id", "%ff"),
        ("ce-id", "a%00b"),
        ("ce-source", "a b"),
        ("ce-time", "yesterday"),
        ("ce-subject", ""),
        ("ce-x_y", "1"),
        ("ce-data", "1"),
        ("ce-data_base64", "AA=="),
        ("ce-datacontenttype", "text/plain"),
        ("ce-dataschema", "relative"),
        ("content-type", "nonsense"),
        ("content-type", "application/json; charset=latin-1"),
    ):
        headers = BINARY | {"content-type": "text/plain"} | {name: value}
        yield BadRequest(f"header {name}: {value}", EVENTS, headers, b"{}")
    for kind in (
        "",
        "text/plain",
        "json",
        "application/xml",
        "application/cloudevents+avro",
        "application/cloudevents",
    ):
        headers = {"content-type": kind} if kind else {}
        yield BadRequest(f"plain, content type {kind or 'missing'}", PLAIN, headers, b"{}")
        yield BadRequest(f"event, content type {kind or 'missing'}", EVENTS, headers, b"{}")
    for charset in ("latin-1", "utf-16", ""):
        yield BadRequest(f"charset {charset!r}", PLAIN, {"content-type": f"{JSON}; charset={charset}"}, b"{}")
    for key in ("", "x" * 201, "a\x01"):
        headers = {"content-type": JSON, "idempotency-key": key}
        if "\x01" not in key:
            yield BadRequest(f"Idempotency-Key of {len(key)} characters", PLAIN, headers, b"{}")


def _declared_fields() -> Iterator[BadRequest]:
    values: dict[str, list[Any]] = {
        "id": [..., None, "", {}, [], True, "a\0b", "x" * 513],
        "time": ["", {}, True, "yesterday", "2026-13-01T00:00:00Z", 1e30],
        "a": [{"b": {}}, {"b": []}],
    }
    for name, bad_values in values.items():
        for value in bad_values:
            order = {key: field for key, field in (ORDER | {name: value}).items() if field is not ...}
            value_text = "missing" if value is ... else orjson.dumps(value).decode()[:30]
            yield BadRequest(
                f"declared field {name}: {value_text}", DECLARED, {"content-type": JSON}, orjson.dumps(order)
            )


def _requests() -> Iterator[BadRequest]:
    headers = {"content-type": JSON}
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        yield BadRequest(f"method {method}", PLAIN, headers, b"", method)
    for name, value in {
        "missing": "",
        "unknown": "Bearer wrong",
        "of another scheme": "Digest x",
        "empty": "Bearer ",
        "no base64": "Basic *",
    }.items():
        yield BadRequest(f"write key {name}", PLAIN, headers | {"authorization": value}, b"{}")
    for path in (
        "/v1/pipes/other/events",
        "/v1/pipes//events",
        "/v1/pipes/orders/events",
        "/v1/nothing",
        "/",
    ):
        yield BadRequest(f"path {path}", path, headers | {"authorization": "Bearer a-write-key"}, b"{}")
