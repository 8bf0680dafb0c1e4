"""Requests to a destination: the HTTP bindings of CloudEvents, transforms, headers, signatures."""

import base64
import dataclasses
import re
from typing import Any

import orjson
import pytest
from aiokafka import ConsumerRecord
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from standardwebhooks import Webhook, WebhookVerificationError

from hifi.runtime.errors import Misconfigured, Rejected
from hifi_http.declaration import HttpDestination
from hifi_http.destination.percent_encoding import percent_encoded
from hifi_http.destination.request_template import RequestTemplate
from hifi_http.destination.signature import webhook_id

NOW_US = 1_700_000_000_123_456
SECRET = "whsec_" + "c2VjcmV0" * 4


def record(data: Any = None, content_type: str = "application/json", **attributes: str) -> ConsumerRecord:
    attributes = {"specversion": "1.0", "id": "i-1", "source": "/s", "type": "made"} | attributes
    headers = [(f"ce_{name}", value.encode()) for name, value in attributes.items()]
    headers += [("content-type", content_type.encode()), ("hifi_pipe", b"flights")]
    value = data if isinstance(data, bytes) else orjson.dumps({"a": 1} if data is None else data)
    return ConsumerRecord("enriched", 0, 0, 0, 0, b"k", value, None, 0, len(value), tuple(headers))


def request_of(
    *records: ConsumerRecord,
    headers: dict[str, str] | None = None,
    signing: str | list[str] = [],  # noqa: B006 - never changed
    **destination: Any,
):
    declared = HttpDestination.model_validate(
        {"name": "d", "url": "http://there.example:8080/in?a=b", **destination}
    )
    secrets = [signing] if isinstance(signing, str) else signing
    template = RequestTemplate(declared, headers or {}, secrets)
    data = template.request(records, [template.part(event_record) for event_record in records], NOW_US)
    head, _, body = data.partition(b"\r\n\r\n")
    request_line, *lines = head.decode("ascii").split("\r\n")
    return request_line, dict(line.split(": ", 1) for line in lines), body


def test_binary_mode_is_what_the_cloudevents_library_reads() -> None:
    request_line, headers, body = request_of(
        record({"a": "ü"}, subject='ein "Ünfug" 100 %\n', traceparent="00-ab-cd-01")
    )
    assert request_line == "POST /in?a=b HTTP/1.1"
    assert headers["Host"] == "there.example:8080"
    assert headers["User-Agent"].startswith("hifi/")
    assert headers["Content-Length"] == str(len(body))
    assert headers["traceparent"] == headers["ce-traceparent"] == "00-ab-cd-01"
    event = from_http_event(HTTPMessage(headers, body))
    assert event.get_id() == "i-1"
    assert event.get_subject() == 'ein "Ünfug" 100 %\n'
    assert event.get_data() == {"a": "ü"}


def test_structured_mode_is_what_the_cloudevents_library_reads() -> None:
    _, headers, body = request_of(record({"a": "ü"}, subject="Ü"), format="cloudevents-structured")
    assert headers["Content-Type"] == "application/cloudevents+json"
    event = from_http_event(HTTPMessage(headers, body))
    assert event.get_subject() == "Ü"
    assert event.get_data() == {"a": "ü"}


@given(
    st.dictionaries(st.text("abc019", min_size=1), st.text()),
    st.sampled_from(["application/json", "a/b+json"]),
)
def test_structured_mode_has_each_attribute_as_it_is(extensions: dict[str, str], content_type: str) -> None:
    """Also those that JSON has to escape."""
    source_record = record({"a": [1]}, content_type, **extensions)
    _, _, body = request_of(source_record, format="cloudevents-structured")
    attributes = {
        name.removeprefix("ce_"): value.decode() for name, value in source_record.headers if "ce_" in name
    }
    assert orjson.loads(body) == attributes | {"datacontenttype": content_type, "data": {"a": [1]}}


@pytest.mark.parametrize("format_", ["cloudevents-binary", "cloudevents-structured", "json"])
def test_the_trace_goes_on_as_headers_whatever_the_format(format_: str) -> None:
    trace = {"traceparent": "00-ab-cd-01", "tracestate": "a=1, b=2"}
    _, headers, _ = request_of(record({}, **trace), format=format_)
    assert {name: headers[name] for name in trace} == trace
    _, headers, _ = request_of(record({}, traceparent="ü"), format=format_)
    assert "traceparent" not in headers


def test_data_that_is_no_json_goes_into_the_envelope_as_base64() -> None:
    _, _, body = request_of(record(b"\xff\x00", "image/png"), format="cloudevents-structured")
    assert orjson.loads(body)["data_base64"] == "/wA="


def test_the_data_alone() -> None:
    _, headers, body = request_of(record(b'{"a":  1}', "application/json; charset=utf-8"), format="json")
    assert body == b'{"a":  1}'
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    assert not [name for name in headers if name.startswith("ce-")]


def test_batches() -> None:
    _, headers, body = request_of(record(id="1"), record(id="2"), batch={"size": 2})
    assert headers["Content-Type"] == "application/cloudevents-batch+json"
    assert [event["id"] for event in orjson.loads(body)] == ["1", "2"]
    _, headers, body = request_of(record({"n": 1}), record({"n": 2}), batch={"size": 2}, format="json")
    assert headers["Content-Type"] == "application/json"
    assert orjson.loads(body) == [{"n": 1}, {"n": 2}]


def test_a_transform_gives_the_data() -> None:
    _, _, body = request_of(record({"a": {"b": [1, 2]}}), transform="{last: a.b[-1]}", format="json")
    assert orjson.loads(body) == {"last": 2}


@pytest.mark.parametrize(
    ("data", "transform"),
    [({"a": 1}, "a.b"), ({"a": 1}, "length(a)"), (b"not json", "a"), ({"a": "x"}, "to_number(a)")],
)
def test_a_transform_that_fails_is_the_events_own_fault(data: Any, transform: str) -> None:
    with pytest.raises(Rejected) as caught:
        request_of(record(data), transform=transform)
    assert caught.value.reason == "transform-failed"


def test_declared_headers_win_where_they_may() -> None:
    _, headers, _ = request_of(
        record(), headers={"user-agent": "mine", "Content-Type": "text/plain", "X-Key": "k"}
    )
    assert headers["user-agent"] == "mine"
    assert headers["X-Key"] == "k"
    assert headers["Content-Type"] == "text/plain"
    assert "User-Agent" not in headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "x"},
        {"content-length": "3"},
        {"a b": "x"},
        {"X": "a\r\nY: b"},
        {"X": "ü"},
        {"Connection": "close"},
    ],
)
def test_headers_that_would_break_the_request_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Misconfigured):
        request_of(record(), headers=headers)


@pytest.mark.parametrize("name", ["webhook-id", "Webhook-Timestamp", "WEBHOOK-SIGNATURE"])
def test_a_signed_request_has_each_header_of_its_signature_once(name: str) -> None:
    with pytest.raises(Misconfigured, match=f"the header '{name}' of d cannot be set"):
        request_of(record(), headers={name: "msg_1"}, signing=SECRET)
    assert request_of(record(), headers={name: "msg_1"})[1][name] == "msg_1"


def test_a_header_secret_is_not_quoted() -> None:
    with pytest.raises(Misconfigured) as caught:
        request_of(record(), headers={"X": "geheim\x00"})
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("binding", ["cloudevents-binary", "cloudevents-structured", "json"])
def test_signatures_are_what_the_library_verifies(binding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "standardwebhooks.webhooks.timedelta", lambda **_: __import__("datetime").timedelta(days=99999)
    )
    _, headers, body = request_of(record({"a": "ü"}, id="mit Raum"), signing=SECRET, format=binding)
    assert Webhook(SECRET).verify(body, headers) == orjson.loads(body)
    assert re.fullmatch("msg_[0-9a-f]{32}", headers["webhook-id"])
    assert headers["webhook-timestamp"] == str(NOW_US // 1_000_000)


def test_while_a_secret_is_replaced_receivers_with_either_verify_the_signature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "standardwebhooks.webhooks.timedelta", lambda **_: __import__("datetime").timedelta(days=99999)
    )
    second_secret, third_secret = "whsec_" + "b3RoZXIh" * 4, "whsec_" + "dGhpcmQh" * 4
    _, headers, body = request_of(record({"a": 1}), signing=[SECRET, second_secret])
    assert [signature.partition(",")[0] for signature in headers["webhook-signature"].split(" ")] == [
        "v1",
        "v1",
    ]
    for secret in (SECRET, second_secret):
        assert Webhook(secret).verify(body, headers) == {"a": 1}
    with pytest.raises(WebhookVerificationError):
        Webhook(third_secret).verify(body, headers)
    destination = HttpDestination.model_validate(
        {"name": "d", "url": "http://h/", "signing": {"env": "NEW"}, "signing_also": [{"env": "OLD"}]}
    )
    assert HttpDestination.model_validate_json(destination.model_dump_json()) == destination
    with pytest.raises(ValidationError, match="needs `signing`"):
        HttpDestination.model_validate({"name": "d", "url": "http://h/", "signing_also": [{"env": "OLD"}]})


def test_an_ed25519_key_signs_what_its_public_key_verifies() -> None:
    key = Ed25519PrivateKey.generate()
    seed, public = key.private_bytes_raw(), key.public_key().public_bytes_raw()
    for key_bytes in (seed, seed + public):
        text = "whsk_" + base64.b64encode(key_bytes).decode()
        _, headers, body = request_of(record({"a": "ü"}), signing=[text, SECRET])
        asymmetric, symmetric = headers["webhook-signature"].split(" ")
        assert symmetric.startswith("v1,")
        version, _, signature = asymmetric.partition(",")
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        key.public_key().verify(base64.b64decode(signature), signed)
        assert version == "v1a"
        with pytest.raises(InvalidSignature):
            key.public_key().verify(base64.b64decode(signature), signed + b" ")


EVENTS = st.tuples(st.text(max_size=4), st.text(max_size=4), st.binary(max_size=4))


def of_event(source: str, identifier: str, key: bytes) -> ConsumerRecord:
    return dataclasses.replace(record(source=source, id=identifier), key=key)


@given(st.lists(EVENTS, min_size=1, max_size=3), st.lists(EVENTS, min_size=1, max_size=3))
def test_the_webhook_id_is_that_of_its_events_in_their_order(
    first: list[tuple[str, str, bytes]], second: list[tuple[str, str, bytes]]
) -> None:
    ids = [webhook_id([of_event(*event) for event in events]) for events in (first, second)]
    assert (ids[0] == ids[1]) == (first == second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("/a", "1", b"k"), ("/b", "1", b"k")),
        (("/a", "1", b"k"), ("/a", "1", b"l")),
        (("/a", "1", b"k"), ("/a1", "", b"k")),
        (("/a", "1.2", b"k"), ("/a", "1", b"2k")),
    ],
    ids=["source", "key", "moved text", "full stop"],
)
def test_events_that_differ_have_webhook_ids_of_their_own(
    first: tuple[str, str, bytes], second: tuple[str, str, bytes]
) -> None:
    _, one_headers, _ = request_of(of_event(*first), signing=SECRET)
    _, other_headers, _ = request_of(of_event(*second), signing=SECRET)
    assert one_headers["webhook-id"] != other_headers["webhook-id"]
    assert "." not in one_headers["webhook-id"]


@pytest.mark.parametrize(
    "secret",
    ["whsec_%%%", "", "a", "whsk_", "whsk_%%%", "whsk_é%%%", "whsk_AAAA", "whsk_" + "AAAA" * 21 + "AA=="],
)
def test_a_signing_secret_that_is_none(secret: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        request_of(record(), signing=secret)
    assert "%%%" not in str(caught.value)


def test_what_cannot_be_signed_is_said() -> None:
    with pytest.raises(Rejected) as caught:
        request_of(record(b"\xff", "image/png"), signing=SECRET)
    assert caught.value.reason == "not-signable"


@given(st.text(max_size=40))
def test_percent_encoding_is_as_the_http_binding_says(text: str) -> None:
    value = percent_encoded(text.encode("utf-8", "surrogatepass"))
    assert all(0x21 <= byte <= 0x7E and byte != 0x22 for byte in value)
    from urllib.parse import unquote_to_bytes

    assert unquote_to_bytes(value) == text.encode("utf-8", "surrogatepass")
