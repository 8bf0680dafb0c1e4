"""The codecs against an outside implementation of CloudEvents, against Kafka's client, and against whatever comes."""

import contextlib
import gzip
import sys
from datetime import UTC, datetime, timedelta, timezone

import orjson
import pytest
from aiokafka.partitioner import murmur2 as kafka_murmur2
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from hypothesis import example, given
from hypothesis import strategies as st

from hifi_ingest.accept import partitioner
from hifi_ingest.decode import cloudevents, json_slices, timestamps
from hifi_ingest.decode.attributes import Incoming
from hifi_ingest.http import decompression
from hifi_ingest.http.answers import Flaw, Problem

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

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
    st.fixed_dictionaries({"id": TEXT, "source": URI, "type": TEXT}),
    st.fixed_dictionaries(
        {"subject": st.none() | TEXT, "time": TIME, "datacontenttype": st.just("application/json")}
    ),
    st.dictionaries(NAME, TEXT, max_size=3),
    st.dictionaries(st.text(max_size=8), JSON, max_size=4),
)


def attributes(event: Incoming) -> dict[str, str]:
    named = {name.removeprefix("ce_"): value.decode() for name, value in event.headers}
    named["datacontenttype"] = named.pop("content-type")
    return named


def expected(event: CloudEvent) -> dict[str, object]:
    return {name: value for name, value in event.get_attributes().items() if name != "time"}


def check(event: CloudEvent, read: Incoming) -> None:
    found = attributes(read)
    time = found.pop("time")
    assert found == expected(event)
    assert datetime.fromisoformat(time) == event.get_time()
    assert read.time_us == (event.get_time() - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert orjson.loads(read.data) == event.get_data()
    key = found.get("partitionkey") or found.get("subject") or found["id"]
    assert read.key == key.encode()


@given(EVENT)
def test_what_the_sdk_sends_in_binary_mode_is_read_the_same(event: CloudEvent) -> None:
    message = to_binary_event(event)
    headers = [(name.lower().encode(), value.encode()) for name, value in message.headers.items()]
    read = cloudevents.binary(headers, message.body, 64)
    check(event, read)
    assert read.data == message.body


@given(EVENT)
def test_what_the_sdk_sends_in_structured_mode_is_read_the_same(event: CloudEvent) -> None:
    check(event, cloudevents.structured(to_structured_event(event).body, 64))


@given(st.lists(EVENT, max_size=5))
def test_a_batch_reads_as_its_events_alone(events: list[CloudEvent]) -> None:
    bodies = [to_structured_event(event).body for event in events]
    body = b"[" + b" , ".join(bodies) + b"]"
    clean = cloudevents.is_clean(body)
    read = [cloudevents.event(members, 64, clean=clean) for members in cloudevents.batched(body)]
    assert read == [cloudevents.structured(each, 64) for each in bodies]


@given(st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=12))), st.binary(max_size=200))
@example([(b"content-type", b"application/json")], b"[" * 100_000)
@example([(b"ce-id", b'"\\')], b"")
def test_no_bytes_make_the_codecs_fail_otherwise_than_with_a_flaw(
    headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    named = [(b"ce-" + name, value) for name, value in headers] + headers
    required = [(b"ce-" + name, b"1.0") for name in (b"specversion", b"id", b"type", b"source")]
    for read in (
        lambda: cloudevents.binary(named, body, 64),
        lambda: cloudevents.binary([*required, *named], body, 64),
        lambda: cloudevents.structured(body, 64),
        lambda: cloudevents.structured(
            b'{"specversion":"1.0","id":"1","source":"s","type":"t",' + body + b"}", 64
        ),
        lambda: [
            cloudevents.event(m, 64, clean=cloudevents.is_clean(body)) for m in cloudevents.batched(body)
        ],
    ):
        with contextlib.suppress(Flaw):
            read()


def test_quoted_and_percent_encoded_headers_are_undone_once() -> None:
    headers = [
        (b"ce-specversion", b"1.0"),
        (b"ce-id", b'"a \\"b\\" %25"'),
        (b"ce-source", b"/s"),
        (b"ce-type", b"%E2%82%AC%2520"),
    ]
    read = cloudevents.binary(headers, b"", 64)
    assert read.id == b'a "b" %'
    assert dict(read.headers)["ce_type"] == "€%20".encode()


def test_text_data_comes_out_of_its_json_string() -> None:
    body = b'{"specversion":"1.0","id":"1","source":"s","type":"t","datacontenttype":"text/plain","data":"a\\nb"}'
    assert cloudevents.structured(body, 64).data == b"a\nb"


def test_null_attributes_are_absent_and_numbers_are_canonical() -> None:
    body = (
        b'{"specversion":"1.0","id":"1","source":"s","type":"t","subject":null,"time":null,"n":-0,"b":false}'
    )
    assert dict(cloudevents.structured(body, 64).headers) == {
        "ce_specversion": b"1.0",
        "ce_id": b"1",
        "ce_source": b"s",
        "ce_type": b"t",
        "ce_n": b"0",
        "ce_b": b"false",
    }


@given(JSON)
def test_depth_is_measured_exactly(value: object) -> None:
    def depth(service: object) -> int:
        inner = (
            service.values() if isinstance(service, dict) else service if isinstance(service, list) else None
        )
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    text = orjson.dumps(value)
    json_slices.shallow(text, depth(value))
    if depth(value):
        with pytest.raises(Flaw):
            json_slices.shallow(text, depth(value) - 1)


@given(JSON)
def test_valid_json_is_cut_verbatim(value: object) -> None:
    text = orjson.dumps(value)
    assert json_slices.one(b" " + text + b"\n") == text
    assert json_slices.array(b"[ " + text + b" ," + text + b"]") == [text, text]


@given(st.binary(max_size=300))
def test_the_partition_is_that_of_kafkas_own_client(key: bytes) -> None:
    assert partitioner.murmur2(key) == kafka_murmur2(key) & 0xFFFFFFFF
    assert partitioner.partition(key, 7) == (kafka_murmur2(key) & 0x7FFFFFFF) % 7


@given(st.datetimes(*YEARS), st.integers(-23, 23), st.sampled_from("Tt "))
def test_times_are_read_exactly(moment: datetime, hours: int, letter: str) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(hours=hours)))
    text = aware.isoformat(sep=letter)
    assert timestamps.read_us(text.encode()) == (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )
    assert datetime.fromisoformat(timestamps.write(timestamps.read_us(text.encode())).decode()) == aware


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-29T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:61Z",
        "2026-01-01",
        "2026-01-01T00:00Z",
        "1",
        "",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        timestamps.read_us(text.encode())


def test_a_leap_second_and_fine_fractions_are_times() -> None:
    assert timestamps.read_us(b"2016-12-31T23:59:60Z") == timestamps.read_us(b"2017-01-01T00:00:00Z")
    assert timestamps.read_us(b"1970-01-01T00:00:00.123456789z") == 123_456


@given(st.lists(st.binary(max_size=2000), max_size=5), st.sampled_from(["gzip", "zstd"]))
def test_coded_bodies_come_out_as_they_went_in(parts: list[bytes], coding: str) -> None:
    compress = gzip.compress if coding == "gzip" else zstd.compress
    body = b"".join(map(compress, parts or [b""]))
    assert b"".join(decompression.expand(coding, body, 100_000)) == b"".join(parts)


@given(st.binary(min_size=1, max_size=300), st.sampled_from(["gzip", "zstd"]))
def test_damaged_bodies_are_a_problem_and_nothing_else(body: bytes, coding: str) -> None:
    whole = (gzip.compress if coding == "gzip" else zstd.compress)(body * 50)
    for damaged in (body, whole[:-1], whole[: len(whole) // 2], whole + body[:1]):
        with pytest.raises(Problem) as caught:
            b"".join(decompression.expand(coding, damaged, 1_000_000))
        assert caught.value.status == 400


def test_expansion_stops_at_the_bound() -> None:
    pieces: list[bytes] = []
    with pytest.raises(Problem) as caught:
        pieces.extend(decompression.expand("gzip", gzip.compress(b" " * 100_000_000), 1_000_000))
    assert caught.value.status == 413
    assert len(b"".join(pieces)) <= 1_000_000
