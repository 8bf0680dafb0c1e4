"""The record written for each event: added fields, destinations, dead letters, and everything else unchanged."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.support.enrich.spark_bench import LIMIT_BYTES, SparkBench, make_headers, make_pipe

from hifi.pipe.model import Pipe, QueryTrigger
from hifi.record.fields import fields, packed, with_fields
from hifi.record.headers import (
    ACCEPTED,
    DESTINATION,
    DETAIL,
    HOP,
    IDENTITY,
    IN,
    MINUTE,
    POINTER,
    REASON,
    REPLAY,
    REVISION,
    REVISION_OFFSET,
    SEQ,
    SERVICE,
    TO,
    Headers,
)
from hifi.record.heartbeat import heartbeat_record, is_heartbeat
from hifi.record.hop import hop, write_stamped_hop
from hifi.runtime.clock import now_us
from hifi_enrich.plan.dataframe import NEWER_REVISION

AIRLINES = {
    "file": "/airlines.csv",
    "key": {"carrier": "code"},
    "fields": {"airline": "name", "home": "home"},
}
ROWS: dict[str, list[dict[str, str | None]]] = {
    "airlines": [
        {"code": "AA", "name": "American", "home": "JFK"},
        {"code": "UA", "name": None, "home": "EWR"},
    ],
    "airports": [{"faa": "JFK", "altitude": "13"}, {"faa": "EWR", "altitude": "NA"}],
}
BYTES = [
    b"",
    b"\x00\xff\xfe",
    b"[1, 2]",
    b'"text"',
    b"3",
    b"{",
    b'{"a": NaN}',
    b"plain",
    '{"a":"é"}'.encode("latin-1"),
]


def test_a_pipe_that_adds_nothing_passes_every_value_key_header_and_partition_on_bit_for_bit(
    bench: SparkBench,
) -> None:
    values = [*BYTES, None, b' { "a" : 1.50 , "a": 2 } \n']
    plan = bench.plan([make_pipe()])
    headers = [*make_headers(), ("odd", b"\xff\x00"), ("odd", b"again"), ("empty", b"")]
    records = [
        (key, value, number, headers) for key in (None, b"", b"\xff") for number, value in enumerate(values)
    ]
    output_records = bench.run(plan, records)
    assert [
        (written_record.key, written_record.value, written_record.partition)
        for written_record in output_records
    ] == [record[:3] for record in records]
    for written_record in output_records:
        assert [written_record.headers[0], *written_record.headers[2:]] == [headers[0], *headers[2:]]
        written_hop = hop(written_record.headers)
        assert (written_hop.raw, written_hop.to) == (1, b"one")
        assert written_record.topic == "enriched"


def test_micro_batches_and_real_time_write_the_same_records(bench: SparkBench) -> None:
    typed_pipe = make_pipe(
        "typed",
        [("large", "n >= 10"), "all"],
        fields={"n": "int", "at": "timestamp", "carrier": "string"},
        lookups={"airlines": {**AIRLINES, "key": {"carrier": "code"}}},
        derive={"double": "n * 2", "day": "date(at)", "fails": "1 / n"},
        filter="n is null or n != 3",
    )
    plan = bench.plan([typed_pipe, make_pipe("plain")], ROWS)
    objects = [b'{"n":%d,"at":"2026-01-02T03:04:05Z","carrier":"AA"}' % number for number in range(20)]
    records = [
        (b"k", value, 1, headers)
        for value in [*BYTES, None, *objects, b"{}" + b" " * LIMIT_BYTES]
        for headers in (make_headers("typed"), make_headers("plain"), make_headers("deleted"), [], None)
    ]

    def output_records(trigger: QueryTrigger) -> list[tuple[Any, ...]]:
        bench.evaluate_as(trigger)
        return [
            (record.key, record.value, record.topic, with_fields(record.headers, {IN: None}))
            for record in bench.run(plan, records)
        ]

    batch_outputs = output_records("micro-batch")
    assert {topic for _, _, topic, _ in batch_outputs} == {"enriched", "dead-letter"}
    assert output_records("real-time") == batch_outputs


def test_the_time_of_fetch_is_each_records_own(bench: SparkBench) -> None:
    start_us = now_us()
    records = bench.values(make_pipe(), [b"{}"] * 50)
    fetch_times_us = [hop(record.headers).in_us for record in records]
    assert start_us <= min(fetch_times_us) <= max(fetch_times_us) <= now_us()
    assert len(set(fetch_times_us)) > 1


def test_added_fields_are_merged_into_the_text_of_the_data(bench: SparkBench) -> None:
    outputs_by_input = {
        b"{}": b'{"twice":null}',
        b" { } \n": b' { "twice":null}',
        b'{"n":2}': b'{"n":2,"twice":4}',
        b'{ "n" : 2.0 , "s":"}" }\r\n': b'{ "n" : 2.0 , "s":"}" ,"twice":4}',
        b'\t{"n":"21","x":{"n":1}}': b'\t{"n":"21","x":{"n":1},"twice":42}',
        '{"é":"\\u00e9 ☃","n":1e1}'.encode(): '{"é":"\\u00e9 ☃","n":1e1,"twice":20}'.encode(),
        b'{"n":{}}': b'{"n":{},"twice":null}',
        b'{"n":1,"n":3}': b'{"n":1,"n":3,"twice":6}',
    }
    pipe = make_pipe(fields={"n": "double"}, derive={"twice": "cast(n * 2 as int)"})
    assert [record.value for record in bench.values(pipe, list(outputs_by_input))] == list(
        outputs_by_input.values()
    )


def test_fields_cannot_be_added_to_what_is_no_json_object(bench: SparkBench) -> None:
    data = [
        *BYTES,
        None,
        b'{"a":1} {"b":2}',
        b'{"a":1}x',
        b'{"a":1},{"b":2}',
        b'{"a":1},"b":{}',
        b'{"a":1}],[{"b":2}',
        b"\xef\xbb\xbf{}",
        b"[" * 10_000 + b"]" * 10_000,
    ]
    for value, record in zip(data, bench.values(make_pipe(derive={"x": "1"}), data), strict=True):
        assert (record.reason, record.value, record.topic) == ("not-an-object", value, "dead-letter"), value


def test_objects_nested_ten_thousand_deep_affect_no_other_event(bench: SparkBench) -> None:
    deep_object = b'{"a":' * 10_000 + b"1" + b"}" * 10_000
    records = bench.values(make_pipe(fields={"a": "string"}, derive={"x": "a"}), [deep_object, b'{"a":1}'])
    assert records[0].reason == "not-an-object"
    assert records[1].value == b'{"a":1,"x":"1"}'


def test_every_type_of_field_is_read_and_written(bench: SparkBench) -> None:
    pipe = make_pipe(
        fields={
            "s": "string",
            "b": "boolean",
            "i": "int",
            "l": "bigint",
            "d": "double",
            "day": "date",
            "at": "timestamp",
        },
        derive={name + "2": name for name in ("s", "b", "i", "l", "d", "day", "at")}
        | {"list": "array(i, null)", "map": "map('k', struct(l))"},
    )
    data = {
        "s": 'a"\\é',
        "b": True,
        "i": -5,
        "l": 2**62,
        "d": 1.25,
        "day": "2024-02-29",
        "at": "2024-02-29T12:00:00.123456+02:00",
    }
    output = json.loads(bench.value(pipe, json.dumps(data).encode()).value or b"")
    assert output == data | {
        "s2": data["s"], "b2": True, "i2": -5, "l2": 2**62, "d2": 1.25, "day2": "2024-02-29",
        "at2": "2024-02-29T10:00:00.123456Z", "list": [-5, None], "map": {"k": {"l": 2**62}},
    }  # fmt: skip


def test_a_value_that_does_not_fit_its_type_is_null(bench: SparkBench) -> None:
    misfits: dict[str, list[Any]] = {
        "int": [2**31, "five", [1]],
        "boolean": ["maybe", 2, 1, "y", "t", "yes"],
        "double": [{}, "1,5", "5d", "7f", "0x1p3"],
        "date": ["2026", "2026-07", "260701", "2026-07-01 xyz", "2026-02-30", 20260701],
        "timestamp": ["12:30", "T12:30", "2026", "2026-07", "2026-07-01 xyz", "2026-07-01T12:30:00 CET"],
    }
    pipe = make_pipe(
        fields={kind: kind for kind in misfits}, derive={"all": f"concat_ws('', `{'`, `'.join(misfits)}`)"}
    )
    data = [json.dumps({kind: value}).encode() for kind, values in misfits.items() for value in values]
    assert [json.loads(record.value or b"")["all"] for record in bench.values(pipe, data)] == [""] * len(data)


def test_a_name_means_what_spark_sql_says(bench: SparkBench) -> None:
    """Backticks, comments, lambda variables that hide a field, and case."""
    pipe = make_pipe(
        fields={"x": "int", "X": "int", "select": "int"},
        derive={
            "a": "x + X -- the sum",
            "b": "transform(array(10), x -> x + X)",
            "c": "`select` /* one */ + `a`",
            "d": "'x; -- '",
        },
    )
    output = json.loads(bench.value(pipe, b'{"x":1,"X":2,"select":4}').value or b"")
    assert {name: output[name] for name in "abcd"} == {"a": 3, "b": [12], "c": 7, "d": "x; -- "}


def test_destinations_are_those_whose_condition_is_true_in_declared_order(bench: SparkBench) -> None:
    pipe = make_pipe("p", [("z", "n > 1"), "a", ("m", "n < 5"), ("never", "n = n + 1")], fields={"n": "int"})
    records = bench.values(pipe, [b'{"n":3}', b'{"n":9}', b'{"n":0}', b"{}"])
    assert [record.to for record in records] == ["z,a,m", "z,a", "a,m", "a"]


def test_an_event_without_destinations_is_written_without_data(bench: SparkBench) -> None:
    unwanted_pipe = make_pipe("p", [("z", "n > 1")], fields={"n": "int"})
    filtered_pipe = make_pipe("p", fields={"n": "int"}, filter="n > 1")
    for pipe in (unwanted_pipe, filtered_pipe):
        *unmatched_records, matched_record = bench.values(
            pipe, [b'{"n":1}', b'{"n":null}', b"no json", b'{"n":2}']
        )
        for record in unmatched_records:
            assert (record.value, record.to, record.topic) == (None, "", "enriched")
        assert matched_record.value == b'{"n":2}'


def test_lookups_add_fields_and_a_later_one_uses_those_of_an_earlier_one(bench: SparkBench) -> None:
    airports = {
        "file": "/a.csv",
        "key": {"home": "faa"},
        "fields": {"altitude": "altitude"},
        "types": {"altitude": "int"},
    }
    pipe = make_pipe(
        fields={"carrier": "string"},
        lookups={"airlines": AIRLINES, "airports": airports},
        derive={"high": "altitude > 10"},
    )
    records = bench.values(pipe, [b'{"carrier":"AA"}', b'{"carrier":"UA"}', b'{"carrier":"?"}', b"{}"], ROWS)
    null_fields = {"airline": None, "home": None, "altitude": None, "high": None}
    assert [json.loads(record.value or b"") for record in records] == [
        {"carrier": "AA", "airline": "American", "home": "JFK", "altitude": 13, "high": True},
        {"carrier": "UA", "airline": None, "home": "EWR", "altitude": None, "high": None},
        {"carrier": "?"} | null_fields,
        null_fields,
    ]


def test_a_lookup_matches_on_several_typed_columns(bench: SparkBench) -> None:
    lookup = {
        "file": "/w.csv", "key": {"place": "place", "hour": "hour", "level": "level", "at": "at"},
        "fields": {"wind": "wind"}, "types": {"hour": "int", "level": "int", "wind": "double", "at": "timestamp"},
    }  # fmt: skip
    rows = {"w": [{"place": "1:a", "hour": "07", "level": 3, "at": "2024-01-01T00:00:00Z", "wind": "2.5"}]}
    pipe = make_pipe(
        fields={"place": "string", "hour": "bigint", "level": "string", "at": "timestamp"},
        lookups={"w": lookup},
    )
    matching_data = b'{"place":"1:a","hour":7,"level":3.0,"at":"2024-01-01T01:00:00+01:00"}'
    data = [
        matching_data,
        matching_data.replace(b"1:a", b"1:"),
        matching_data.replace(b":7,", b":7.5,"),
        matching_data.replace(b"3.0", b"3.5"),
    ]
    winds = [json.loads(record.value or b"")["wind"] for record in bench.values(pipe, data, rows)]
    assert winds == [2.5, None, None, None]


def test_the_default_of_a_miss_is_typed_and_a_null_in_a_found_row_stays_null(bench: SparkBench) -> None:
    lookup = AIRLINES | {"miss": "default", "default": {"airline": "O'Neil \\ Söhne"}}
    pipe = make_pipe(fields={"carrier": "string"}, lookups={"airlines": lookup})
    names = [
        json.loads(record.value or b"")["airline"]
        for record in bench.values(pipe, [b'{"carrier":"?"}', b'{"carrier":"UA"}'], ROWS)
    ]
    assert names == ["O'Neil \\ Söhne", None]


def test_a_miss_can_be_a_dead_letter_that_names_the_lookup(bench: SparkBench) -> None:
    pipe = make_pipe(fields={"carrier": "string"}, lookups={"airlines": AIRLINES | {"miss": "dead-letter"}})
    missed_record, matched_record = bench.values(pipe, [b'{"carrier":"?"}', b'{"carrier":"UA"}'], ROWS)
    assert (missed_record.reason, missed_record.value) == ("lookup-miss", b'{"carrier":"?"}')
    assert "airlines" in missed_record.detail
    assert "?" not in missed_record.detail
    assert matched_record.reason is None


def test_a_required_null_is_a_dead_letter(bench: SparkBench) -> None:
    declared_pipe = make_pipe(fields={"n": "int"}, required=["n"])
    derived_pipe = make_pipe(fields={"n": "int"}, derive={"half": {"sql": "10 / n", "required": True}})
    for pipe, data, name in ((declared_pipe, b'{"n":"x"}', "n"), (derived_pipe, b'{"n":0}', "half")):
        record = bench.value(pipe, data)
        assert (record.reason, record.value) == ("required-null", data)
        assert name in record.detail
        assert bench.value(pipe, b'{"n":5}').reason is None


def test_an_expression_that_throws_affects_its_own_event_only(bench: SparkBench) -> None:
    pipe = make_pipe(
        fields={"n": "int", "p": "string"}, derive={"x": "element_at(array(1, 2), n)", "y": "'a' rlike p"}
    )
    records = bench.values(
        pipe, [b'{"n":1,"p":"a"}', b'{"n":0,"p":"a"}', b'{"n":1,"p":"("}', b'{"n":2,"p":"b"}']
    )
    assert [record.reason for record in records] == [None, "sql-failed", "sql-failed", None]
    assert records[1].value == b'{"n":0,"p":"a"}'


def test_dead_letters_keep_key_value_headers_and_partition(bench: SparkBench) -> None:
    plan = bench.plan([make_pipe(derive={"x": "1"})])
    headers = make_headers(odd=b"\xff")
    [record] = bench.run(plan, [(b"\xfe", b"[1]", 3, headers)])
    assert (record.key, record.value, record.partition) == (b"\xfe", b"[1]", 3)
    assert [record.headers[0], *record.headers[2 : len(headers)]] == [headers[0], *headers[2:]]
    assert hop(record.headers).raw == 1
    failure_fields = dict(record.headers[len(headers) :])
    assert set(failure_fields) == {REASON, DETAIL, SERVICE}
    assert failure_fields[SERVICE] == b"enrich"


@pytest.mark.parametrize("trigger", ["micro-batch", "real-time"])
def test_a_replayed_delivery_goes_to_its_destination_alone_if_the_condition_holds_now(
    bench: SparkBench, trigger: QueryTrigger
) -> None:
    bench.evaluate_as(trigger)
    watched_pipe = make_pipe("watched", [("large", "n >= 10"), "all"], fields={"n": "int"})
    watched_pipe = Pipe.model_validate(
        watched_pipe.model_dump(exclude_defaults=True) | {"watch": [{"field": "n", "values": ["1", "2"]}]}
    )
    plan = bench.plan(
        [make_pipe("p", [("large", "n >= 10"), "all"], fields={"n": "int"}), watched_pipe, make_pipe("plain")]
    )

    def replay_to(destination: str | None) -> dict[str, Any]:
        if destination is None:
            return {}
        return {DESTINATION: destination.encode(), SERVICE: b"egest", REPLAY: b"1"}

    cases = [
        (name, destination, value)
        for name in ("p", "watched")
        for destination in ("large", "all", "gone", None)
        for value in (b'{"n":1}', b'{"n":10}')
    ] + [("plain", "one", b"{}"), ("plain", "other", b"{}")]
    records = [
        (
            b"k",
            value,
            0,
            make_headers(name, **replay_to(destination)),
        )
        for name, destination, value in cases
    ]
    for (name, destination, value), record in zip(cases, bench.run(plan, records), strict=True):
        declared_names = {"plain": ["one"]}.get(name) or (["large", "all"] if b"10" in value else ["all"])
        expected_names = (
            declared_names
            if destination is None
            else [name for name in declared_names if name == destination]
        )
        assert record.to == ",".join(expected_names), (name, destination, value)
        assert record.value == (value if expected_names else None)
        assert DESTINATION not in dict(record.headers)


def test_headers_of_an_earlier_pass_are_replaced_but_for_what_tells_a_replay_from_a_copy(
    bench: SparkBench,
) -> None:
    earlier_headers: dict[str, Any] = {
        REASON: b"x",
        DETAIL: b"x",
        SERVICE: b"enrich",
        POINTER: b"/x",
        TO: b"x",
        REPLAY: b"1",
    }
    [record] = bench.run(bench.plan([make_pipe()]), [(b"k", b"{}", 0, make_headers(**earlier_headers))])
    header_names = [name for name, _ in record.headers]
    assert header_names == [IDENTITY, HOP, "ce_id", SERVICE, REPLAY]
    assert dict(record.headers)[SERVICE] == b"enrich"
    assert record.to == "one"
    plan = bench.plan([make_pipe(fields={"n": "int"}, required=["n"])])
    [refused_record] = bench.run(
        plan, [(b"k", b"{}", 0, make_headers(**earlier_headers | {SERVICE: b"normalize"}))]
    )
    assert [value for name, value in refused_record.headers if name == SERVICE] == [b"enrich"]


def test_an_event_that_grows_too_large_is_a_dead_letter_with_its_input(bench: SparkBench) -> None:
    pipe = make_pipe(fields={"s": "string"}, derive={"t": "concat(s, s)"})
    small_data, large_data = (
        json.dumps({"s": "x" * (LIMIT_BYTES // divisor)}).encode() for divisor in (4, 3)
    )
    records = bench.values(pipe, [small_data, large_data])
    assert [record.reason for record in records] == [None, "too-large"]
    assert records[1].value == large_data


def test_a_record_that_is_no_event_is_a_dead_letter(bench: SparkBench) -> None:
    header_names = (REVISION, REVISION_OFFSET, SEQ, ACCEPTED, MINUTE, IN)
    header_fields = fields(make_headers())
    malformed_headers = [packed(header_fields | {name: b"\xff?"}) for name in header_names]
    other_format = [(IDENTITY, b"1;p;0;0;0;0;" + header_fields[SEQ]), *make_headers()[1:]]
    swapped_headers = [*make_headers()[1::-1], *make_headers()[2:]]
    invalid_headers = [
        *(headers_without(name) for name in (IDENTITY, HOP)),
        *malformed_headers,
        other_format,
        swapped_headers,
        None,
    ]
    plan = bench.plan([make_pipe()])
    records = bench.run(
        plan, [*((None, b"x", 0, headers) for headers in invalid_headers), (None, b"y", 0, make_headers())]
    )
    assert [record.reason for record in records] == ["not-an-event"] * len(invalid_headers) + [None]
    assert {record.value for record in records} == {b"x", b"y"}


@pytest.mark.parametrize("trigger", ["micro-batch", "real-time"])
def test_stamps_and_heartbeats_pass(bench: SparkBench, trigger: QueryTrigger) -> None:
    bench.evaluate_as(trigger)
    watched = Pipe.model_validate(
        make_pipe("w", fields={"n": "int"}).model_dump(mode="json", by_alias=True, exclude_defaults=True)
        | {"watch": [{"field": "n", "bounds": [10]}]}
    )
    plan = bench.plan([make_pipe(derive={"m": "1"}), watched, make_pipe("filtered", [("one", "1 > 2")])])
    heartbeats = [heartbeat_record("p", 5, 7, 1_700_000_000_000), heartbeat_record("gone", 5, -1, None)]
    malformed = [
        (IDENTITY, heartbeats[0].headers[0][1].replace(b"2;p;0", b"2;p;x")),
        heartbeats[0].headers[1],
    ]
    events = [
        (
            b"k",
            b'{"n":3}',
            0,
            [make_headers(pipe)[0], write_stamped_hop(1, 4, stamp_ms), *make_headers(pipe)[2:]],
        )
        for pipe, stamp_ms in (("p", 12), ("w", 13), ("filtered", 14), ("p", None))
    ]
    records = bench.run(
        plan,
        [
            *events,
            *((None, None, 1, headers) for headers in [*(beat.headers for beat in heartbeats), malformed]),
        ],
    )
    hops = [hop(record.headers) for record in records[:6]]
    assert [(read.raw, read.stamp_ms) for read in hops] == [
        (4, 12),
        (4, 13),
        (4, 14),
        (4, None),
        (7, 1_700_000_000_000),
        (-1, None),
    ]
    assert [read.to for read in hops] == [b"one", b"one", b"", b"one", b"", b""]
    assert (hops[1].watch or b"").endswith(b":0")
    assert records[3].headers[1][1].count(b";") == 2, "nothing is added without a stamp"
    for heartbeat, record in zip(heartbeats, records[4:6], strict=True):
        assert (record.key, record.value, record.topic, record.partition) == (None, None, "enriched", 1)
        assert is_heartbeat(record.headers)
        assert [record.headers[0], *record.headers[2:]] == [heartbeat.headers[0]]
    assert [record.reason for record in records] == [None] * 6 + ["not-an-event"]


def headers_without(name: str) -> Headers:
    return [header for header in make_headers() if header[0] != name]


def test_an_event_of_a_deleted_pipe_is_a_dead_letter(bench: SparkBench) -> None:
    plan = bench.plan([make_pipe("other")], offset=5)
    [record] = bench.run(plan, [(b"k", b"{}", 0, make_headers("gone", 5))])
    assert (record.reason, record.value) == ("pipe-deleted", b"{}")


def test_an_event_of_a_later_revision_than_the_plan_stops_the_query(bench: SparkBench) -> None:
    plan = bench.plan([make_pipe()], offset=5)
    with pytest.raises(Exception, match=f"{NEWER_REVISION}=6"):
        bench.run(plan, [(b"k", b"{}", 0, make_headers("p", 6))])


def test_forty_fields_derived_from_each_other_compile(bench: SparkBench) -> None:
    """2^40 steps would be a lifetime; see `let` in hifi.spark.generator."""
    derive = {"d0": "n + 1", **{f"d{depth}": f"d{depth - 1} + 1" for depth in range(1, 40)}}
    pipe = make_pipe(fields={"n": "int"}, derive=derive)
    [record] = bench.values(pipe, [b'{"n": 1}'])
    assert record.value is not None
    assert json.loads(record.value)["d39"] == 41


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


# Each example is a Spark job over many objects; shrinking one would take minutes.
@settings(
    max_examples=2,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(st.dictionaries(st.text(), _JSON, max_size=4), min_size=20, max_size=60),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_any_object_keeps_its_text_and_gains_the_field(
    bench: SparkBench, objects: list[dict[str, Any]], indent: int | None, ascii_only: bool
) -> None:
    texts = [
        json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace")
        for document in objects
    ]
    for text, record in zip(texts, bench.values(make_pipe(derive={"added": "1"}), texts), strict=True):
        assert record.value is not None
        assert record.value.startswith(text.rstrip()[:-1])
        assert json.loads(record.value) == json.loads(text) | {"added": 1}
