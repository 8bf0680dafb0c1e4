"""Records that are CloudEvents keep their attributes, as the CloudEvents SDK writes them to Kafka."""

from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from cloudevents.core.bindings.kafka import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from hifi.record.headers import CONTENT_TYPE, REFUSED
from hifi.record.refusal import parse_refusal
from hifi_kafka.declaration import KafkaSource
from hifi_kafka.source.records import RecordReader

ATTRIBUTES = {"id": "7", "source": "/shop", "type": "order", "subject": "a b%25", "partitionkey": "k1"}
DATA = {"customer": {"id": "c9"}, "n": 1}


BINARY = [("ce_specversion", b"1.0"), ("ce_id", b"7"), ("ce_source", b"/s"), ("ce_type", b"t")]


def source(**settings: Any) -> KafkaSource:
    return KafkaSource.model_validate(
        {"kind": "kafka", "bootstrap": "127.0.0.1:9092", "topic": "orders", **settings}
    )


def record(value: bytes | None, headers: Any, key: bytes | None = b"k0") -> Any:
    return SimpleNamespace(partition=0, offset=3, timestamp=1000, key=key, value=value, headers=headers)


def read(record: Any, **settings: Any) -> Any:
    return RecordReader(source(**settings), "cluster", 1000)(record)


def written(mode: Any, attributes: dict[str, Any] = ATTRIBUTES) -> Any:
    message = mode(
        CloudEvent({"specversion": "1.0", "datacontenttype": "application/json", **attributes}, DATA)
    )
    return record(message.value, [(name, value) for name, value in message.headers.items()])


@pytest.mark.parametrize("mode", [to_binary_event, to_structured_event])
def test_a_cloudevent_keeps_its_attributes_and_its_data(mode: Any) -> None:
    event = read(written(mode))
    headers = dict(event.headers)
    assert REFUSED not in headers
    assert {name: headers[f"ce_{name}"].decode() for name in ATTRIBUTES} == ATTRIBUTES
    assert orjson.loads(event.data) == DATA
    assert (event.position, event.key) == (3, b"k1")


@pytest.mark.parametrize("mode", [to_binary_event, to_structured_event])
def test_the_type_of_watermarks_is_refused(mode: Any) -> None:
    event = read(written(mode, ATTRIBUTES | {"type": "hifi.watermark"}))
    assert "hifi.watermark is reserved" in parse_refusal(dict(event.headers)[REFUSED]).detail
    with pytest.raises(ValidationError, match="reserved"):
        source(type="hifi.watermark")


@pytest.mark.parametrize("mode", [to_binary_event, to_structured_event])
def test_the_key_is_that_of_the_record_unless_the_event_or_the_pipe_names_one(mode: Any) -> None:
    keyless_attributes = {name: value for name, value in ATTRIBUTES.items() if name != "partitionkey"}
    assert read(written(mode, keyless_attributes)).key == b"k0"
    assert read(written(mode), partition_key="customer.id").key == b"c9"


def test_binary_data_need_not_be_json() -> None:
    event = read(record(b"\x00\xff", [*BINARY, ("content-type", b"image/png")]))
    assert event.data == b"\x00\xff"
    assert dict(event.headers)[CONTENT_TYPE] == b"image/png"
    assert dict(read(record(b"not json {", BINARY)).headers)[CONTENT_TYPE] == b"application/octet-stream"


@pytest.mark.parametrize("mode", [to_binary_event, to_structured_event, None])
def test_a_byte_order_mark_in_front_of_json_is_not_part_of_the_data(mode: Any) -> None:
    unmarked = record(b'{"a":1}', []) if mode is None else written(mode)
    with_mark = SimpleNamespace(**{**vars(unmarked), "value": b"\xef\xbb\xbf" + unmarked.value})
    assert (read(with_mark).data, read(with_mark).headers) == (read(unmarked).data, read(unmarked).headers)


@pytest.mark.parametrize(
    ("value", "headers", "reason"),
    [
        (b"{}", [("content-type", b"application/cloudevents+json; charset=UTF-8")], "not-a-cloudevent"),
        (b"{}", [("ce_specversion", b"1.0"), ("ce_id", b"7")], "not-a-cloudevent"),
        (b"{}", [("ce_specversion", b"1.0"), ("ce_id", b"\xff")], "not-a-cloudevent"),
        (b"x" * 1001, [("ce_specversion", b"1.0")], "too-large"),
        (b'{"a":', [*BINARY, ("content-type", b"application/json")], "not-a-cloudevent"),
        (
            orjson.dumps(
                ATTRIBUTES
                | {"specversion": "1.0", "datacontenttype": "application/json", "data_base64": "eyJiIjoy"}
            ),
            [("content-type", b"application/cloudevents+json")],
            "not-a-cloudevent",
        ),
        (b"{}", [*BINARY, ("ce_region", b"x" * 4097)], "not-a-cloudevent"),
    ],
)
def test_what_only_says_that_it_is_a_cloudevent_becomes_a_dead_letter(
    value: Any, headers: Any, reason: str
) -> None:
    event = read(record(value, headers))
    assert parse_refusal(dict(event.headers)[REFUSED]).reason == reason


PLAIN_HEADERS = [("ce_specversion", b"1.0"), ("ce_id", b"7"), ("ce_source", b"/s"), ("ce_type", b"t")]


@pytest.mark.parametrize("headers", [None, [], [("content-type", b"application/json")], [("ce_id", b"1")]])
def test_a_record_without_a_value_deletes_its_key(headers: Any) -> None:
    assert orjson.loads(read(record(None, headers)).data) == {"key": "k0", "deleted": True}


@pytest.mark.parametrize(("attribute_bytes", "count"), [(900, 60), (900, 80)])
def test_attributes_that_together_are_much_larger_than_a_value_make_a_dead_letter(
    attribute_bytes: int, count: int
) -> None:
    attributes = [(f"ce_a{number}", b"x" * attribute_bytes) for number in range(count)]
    event = read(record(b"{}", [*BINARY, *attributes]))
    headers = dict(event.headers)
    if count == 60:
        assert REFUSED not in headers
        assert headers["ce_a59"] == attributes[-1][1]
    else:
        refusal = parse_refusal(headers[REFUSED])
        assert refusal.reason == "too-large"
        assert "data and attributes" in refusal.detail
        assert sum(len(name) + len(value) for name, value in event.headers) < 1000
        assert event.data is None


def test_a_binary_cloudevent_without_a_value_is_an_event_without_data() -> None:
    event = read(record(None, PLAIN_HEADERS))
    headers = dict(event.headers)
    assert (event.data, event.key, headers["ce_id"], headers["ce_type"]) == (b"", b"k0", b"7", b"t")
    assert REFUSED not in headers


def test_a_structured_cloudevent_without_a_value_is_refused_and_deletes_nothing() -> None:
    event = read(record(None, [("content-type", b"application/cloudevents+json")]))
    assert parse_refusal(dict(event.headers)[REFUSED]).reason == "not-a-cloudevent"
    assert event.data is None


@pytest.mark.parametrize(
    "name", ["ce_subject", "ce_time", "ce_partitionkey", "content-type", "ce_x", "other"]
)
def test_a_header_with_a_null_value_is_as_if_it_were_absent(name: str) -> None:
    with_null_header, without_header = (
        read(record(b'{"a":1}', [*PLAIN_HEADERS, *extra_headers])) for extra_headers in ([(name, None)], [])
    )
    assert (with_null_header.headers, with_null_header.data, with_null_header.key) == (
        without_header.headers,
        without_header.data,
        without_header.key,
    )
    plain_event = read(record(b'{"a":1}', [(name, None)]))
    assert (plain_event.data, REFUSED in dict(plain_event.headers)) == (b'{"a":1}', False)


def test_a_null_specversion_makes_no_cloudevent() -> None:
    assert read(record(b"{}", [("ce_specversion", None)])).data == b"{}"
    assert orjson.loads(read(record(None, [("ce_specversion", None)])).data)["deleted"] is True


@pytest.mark.parametrize(
    "timestamp", [None, -1, -(2**63), 253_402_300_800_000, 1_790_000_000_000_000, 2**63 - 1]
)
def test_a_record_whose_timestamp_no_calendar_has_gets_the_time_of_reading(timestamp: int | None) -> None:
    dated_record = record(b"{}", [])
    dated_record.timestamp = timestamp
    event = read(dated_record)
    assert event.time_us is None
    assert {"ce_time", REFUSED}.isdisjoint(dict(event.headers))


def test_a_timestamp_up_to_the_year_9999_is_the_time_of_the_event() -> None:
    dated_record = record(b"{}", [])
    dated_record.timestamp = 253_402_300_799_999
    event = read(dated_record)
    assert (event.time_us, dict(event.headers)["ce_time"]) == (
        253_402_300_799_999_000,
        b"9999-12-31T23:59:59.999Z",
    )


BOM = b"\xef\xbb\xbf"


def test_a_byte_order_mark_before_json_is_left_out_and_one_before_other_data_is_data() -> None:
    assert read(record(BOM + b'{"a":1}', None)).data == b'{"a":1}'
    json_headers = [*PLAIN_HEADERS, ("content-type", b"application/json; charset=utf-8")]
    assert read(record(BOM + b'{"a":1}', json_headers)).data == b'{"a":1}'
    assert read(record(BOM + b"a", [*PLAIN_HEADERS, ("content-type", b"text/plain")])).data == BOM + b"a"
    event = written(to_structured_event)
    event.value = BOM + event.value
    assert orjson.loads(read(event).data) == DATA
    double_mark = read(record(BOM + BOM + b'{"a":1}', None))
    assert parse_refusal(dict(double_mark.headers)[REFUSED]).reason == "not-json"


def test_json_that_is_nested_deeper_than_ingest_accepts_is_refused() -> None:
    deep_event = read(record(b'{"a":' * 65 + b"1" + b"}" * 65, None))
    refusal = parse_refusal(dict(deep_event.headers)[REFUSED])
    assert (refusal.reason, refusal.detail) == ("not-json", "the value is nested deeper than 64 levels")
    assert read(record(b'{"a":' * 64 + b"1" + b"}" * 64, None)).data is not None
    assert REFUSED not in dict(read(record(b'{"a":' * 64 + b"1" + b"}" * 64, None)).headers)


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *(f"ce_{name}" for name in ("", "specversion", "id", "source", "type", "time", "subject", "data")),
                "content-type",
                "ü",
            ]
        ),
        st.none()
        | st.sampled_from([b"1.0", b"/s", b"application/cloudevents+json", b"application/json; charset=x", b""])
        | st.binary(max_size=20),
    ),
    max_size=8,
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=500)
@given(
    st.none() | st.binary(max_size=60) | st.text(st.sampled_from('{}[]",:ab01e-+.\ufeff'), max_size=40).map(str.encode),
    st.none() | HEADERS,
    st.none() | st.binary(max_size=20),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)  # fmt: skip
def test_every_record_is_an_event_or_is_refused(
    value: bytes | None, headers: Any, key: bytes | None, timestamp: int | None
) -> None:
    any_record = record(value, headers, key)
    any_record.timestamp = timestamp
    event = read(any_record, partition_key="a.b")
    assert event.position == 3
    assert all(isinstance(text, bytes) for _, text in event.headers)
    assert isinstance(event.key, bytes)
    header_names = [name for name, _ in event.headers]
    assert len(header_names) == len(set(header_names))
    assert "ce_id" in header_names
    if REFUSED not in header_names:
        assert event.data is not None


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ('{"n": 1}'.encode("utf-16"), "not UTF-8: the byte order mark at its start is that of UTF-16"),
        (b'{"n": "\xff"}', "not UTF-8 at byte 7"),
        (
            b' \xef\xbb\xbf{"n": 1}',
            "it begins with a byte order mark (U+FEFF), which is allowed only at the start of a body or file",
        ),
    ],
)
def test_a_value_that_is_not_json_is_refused_with_the_cause(value: bytes, detail: str) -> None:
    refusal = dict(read(record(value, ())).headers)[REFUSED]
    assert parse_refusal(refusal) == ("not-json", f"the value is not JSON: {detail}")
