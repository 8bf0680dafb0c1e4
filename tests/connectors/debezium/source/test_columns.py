"""Values of Debezium 3.3 as JSON. The examples were made by a real connector; test_equivalence.py has all types."""

import base64
import datetime as dt
import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.runtime import exact_json
from hifi_debezium.source.columns import (
    NAMED_TYPES,
    SOURCE_TYPE,
    Row,
    Types,
    Unreadable,
    placeholder,
    read_fields,
    read_row,
    types_to_look_up,
)

EPOCH = dt.datetime.fromtimestamp(0, dt.UTC).replace(tzinfo=None)
MARK = placeholder("changes.shop")


def field(
    kind: str, name: str = "", source: str = "", items: dict[str, Any] | None = None, **other_parameters: str
) -> dict[str, Any]:
    parameters = {SOURCE_TYPE: source, **other_parameters} if source else other_parameters
    declared = {"field": "v", "type": kind, "parameters": parameters}
    if name:
        declared["name"] = f"io.debezium.{name}"
    if items:
        declared["items"] = items
    return declared


def read(
    declared: dict[str, Any],
    value: Any,
    *,
    snapshot: bool = False,
    partial: bool = False,
    types: Types | None = None,
) -> Row:
    return read_row(
        read_fields({"fields": [declared]}, MARK, types or {}),
        {"v": value},
        snapshot=snapshot,
        partial=partial,
    )


def as_json(row: Row) -> Any:
    """The values as a reader of the event has them."""
    return exact_json.loads(exact_json.dumps(row.values))


DATE, TIMESTAMP, ZONED = (
    field("int32", "time.Date"),
    field("int64", "time.MicroTimestamp"),
    field("string", "time.ZonedTimestamp"),
)
MILLIS, NUMERIC = field("int64", "time.Timestamp"), field("string", source="NUMERIC")
DATES = field("array", source="_DATE", items={"type": "int32", "name": "io.debezium.time.Date"})


@pytest.mark.parametrize(
    ("declared", "value", "text"),
    [
        (DATE, 19782, "2024-02-29"),
        (DATE, -171606, "1500-02-28"),
        (DATE, -735160, "0044-03-15 BC"),
        (DATE, -2440550, "4713-01-01 BC"),
        (DATE, 3672148, "12024-01-01"),
        (DATE, 2145042905, "5874897-12-31"),
        (DATE, -2147472692, "infinity"),
        (DATE, -2147472691, "-infinity"),
        (field("int64", "time.MicroTime"), 45296789012, "12:34:56.789012"),
        (field("int64", "time.MicroTime"), 86400000000, "24:00:00"),
        (field("int32", "time.Time"), 45296789, "12:34:56.789"),
        (TIMESTAMP, 1709210096789012, "2024-02-29T12:34:56.789012"),
        (TIMESTAMP, -1, "1969-12-31T23:59:59.999999"),
        (TIMESTAMP, -63517780800000000, "0044-03-15 12:00:00 BC"),
        (TIMESTAMP, 317273590923000000, "12024-01-01 01:02:03"),
        (TIMESTAMP, 9223372036825200000, "infinity"),
        (TIMESTAMP, -9223372036832400000, "-infinity"),
        (MILLIS, 1709210096789, "2024-02-29T12:34:56.789"),
        (MILLIS, 9223372036825200, "infinity"),
        (MILLIS, -9223372036832400, "-infinity"),
        (ZONED, "2024-02-29T10:34:56.789012Z", "2024-02-29T10:34:56.789012Z"),
        (ZONED, "infinity", "infinity"),
        (ZONED, "-0043-03-15T12:00:00.000000Z", "0044-03-15 12:00:00.000000+00 BC"),
        (ZONED, "+12024-01-01T01:02:03.000000Z", "12024-01-01 01:02:03.000000+00"),
        (field("string", "time.Interval"), "P1Y2M-3DT4H5M6.789S", "P1Y2M-3DT4H5M6.789S"),
        (NUMERIC, "NAN", "NaN"),
        (NUMERIC, "NEGATIVE_INFINITY", "-Infinity"),
        (field("string"), "NAN", "NAN"),
        (field("string", source="MONEY"), "9.9999999912E8", "999999999.12"),
        (field("bytes", source="BYTEA"), "AP8Q", "AP8Q"),
        (field("bytes"), "KDEseCk=", "(1,x)"),
        (field("boolean", source="BIT"), True, "1"),
        (field("bytes", "data.Bits", "BIT", length="8"), "oQ==", "10100001"),
        (field("bytes", "data.Bits", "BIT", length="12"), "BQA=", "000000000101"),
        (field("string", "data.Json", "HSTORE"), '{"a":"1","b":null}', {"a": "1", "b": None}),
        (field("string", "data.Json"), '"abc"', "abc"),
        (field("string", "data.Json"), "5", 5),
        (field("struct", "data.geometry.Point"), {"x": 1.5, "y": 2.0, "wkb": "", "srid": None}, "(1.5,2.0)"),
        (field("struct", "data.geometry.Point"), {"x": "NaN", "y": "-Infinity"}, "(NaN,-Infinity)"),
        (DATES, [19723, None], ["2024-01-01", None]),
        (DATES, [-622191234], ["infinity"]),
        (DATES, [], []),
        (field("array", source="_BYTEA", items={"type": "bytes"}), ["AP8="], ["AP8="]),
    ],
)  # fmt: skip
def test_a_value_is_what_the_column_has(declared: dict[str, Any], value: Any, text: Any) -> None:
    assert as_json(read(declared, value)) == {"v": text}


def test_json_is_the_text_that_the_column_has() -> None:
    text = '{"a": 1,"a":2, "n":1.10, "u":"\\u00e9"}'
    values = read(field("string", "data.Json"), text).values
    assert exact_json.dumps(values) == f'{{"v":{text}}}'.encode()


def test_json_that_cannot_be_written_again_is_refused() -> None:
    deepest = "[" * 250 + "]" * 250
    assert orjson.dumps(orjson.loads(exact_json.dumps(read(field("string", "data.Json"), deepest).values)))
    with pytest.raises(Unreadable, match="nested deeper than 250 levels"):
        read(field("string", "data.Json"), f"[{deepest}]")


@pytest.mark.parametrize(
    ("declared", "value", "snapshot"),
    [
        (field("string", "time.ZonedTime"), "10:00:00Z", False),
        (field("bytes", "data.Bits", "VARBIT", length="12"), "BQ==", False),
        (field("string", source="MONEY"), "9.223372036854776E16", True),
        (DATE, -703383, True),
        (DATE, -2440550 - 40, False),
        (TIMESTAMP, -63517953600000000, True),
        (TIMESTAMP, -9223372036853775810, False),
        (ZONED, "1500-03-09T01:02:03.000000Z", True),
        (ZONED, "-0043-03-13T12:00:00.000000Z", True),
        (DATES, [-735160], False),
        (field("array", source="_INT4", items={"type": "int32"}), [None, None], False),
        (field("bytes"), "/w==", False),
        (field("string", "data.Json"), '{"a": "\\ud800"}' + "1.5", False),
    ],
)
def test_what_debezium_changes_is_refused_with_the_column(
    declared: dict[str, Any], value: Any, snapshot: bool
) -> None:
    with pytest.raises(Unreadable, match="the column v "):
        read(declared, value, snapshot=snapshot)


@pytest.mark.parametrize(
    ("declared", "unchanged_mark"),
    [
        (field("string"), MARK),
        (field("string", "data.Json"), MARK),
        (field("string", "data.Json", "HSTORE"), f'{{"{MARK}":"{MARK}"}}'),
        (field("array", source="_TEXT", items={"type": "string"}), [MARK]),
        (field("array", source="_INT8", items={"type": "int64"}), list(MARK.encode())),
        (DATES, list(MARK.encode())),
    ],
)
def test_a_value_that_did_not_change_is_left_out(declared: dict[str, Any], unchanged_mark: Any) -> None:
    assert read(declared, unchanged_mark, partial=True) == Row({}, ["v"])


def test_null_is_refused_where_it_may_stand_for_a_value_that_did_not_change() -> None:
    numbers = field("array", source="_NUMERIC", items={"type": "string"})
    assert read(numbers, None).values == {"v": None}
    assert read(NUMERIC, None, partial=True).values == {"v": None}
    with pytest.raises(Unreadable, match="REPLICA IDENTITY FULL"):
        read(numbers, None, partial=True)


@given(st.dates(), st.booleans())
def test_dates_are_those_of_the_gregorian_calendar(date: dt.date, snapshot: bool) -> None:
    if snapshot and date < dt.date(1582, 10, 15):
        return
    days = (date - dt.date(1970, 1, 1)).days
    assert read(DATE, days, snapshot=snapshot).values == {"v": date.isoformat()}


@given(st.datetimes())
def test_timestamps_keep_microseconds(timestamp: dt.datetime) -> None:
    text = read(TIMESTAMP, (timestamp - EPOCH) // dt.timedelta(microseconds=1)).values["v"]
    assert dt.datetime.fromisoformat(text) == timestamp


DOMAINS = [
    (field("bytes", source="D_V"), "AP8=", "BYTEA", "AP8="),
    (field("bytes", source="D_V"), "KDEseCk=", "PAIR", "(1,x)"),
    (field("boolean", source="D_V"), True, "BIT", "1"),
    (field("boolean", source="D_V"), True, "BOOL", True),
    (field("bytes", "data.Bits", "D_V", length="12"), "BQA=", "BIT", "000000000101"),
    (field("string", source="D_V"), "9.9999999912E8", "MONEY", "999999999.12"),
    (field("string", source="D_V"), "NAN", "NUMERIC", "NaN"),
    (field("string", source="D_V"), "NAN", "TEXT", "NAN"),
    (field("array", source="D_V", items={"type": "bytes"}), ["AP8="], "_BYTEA", ["AP8="]),
    (field("array", source="_D_V", items={"type": "bytes"}), ["XHgwMGZm"], "_D_V", ["\\x00ff"]),
]


@pytest.mark.parametrize(("declared", "value", "base", "expected"), DOMAINS)
def test_a_domain_has_the_values_of_the_type_below_it_and_is_refused_where_that_is_not_known(
    declared: dict[str, Any], value: Any, base: str, expected: Any
) -> None:
    (name,) = types_to_look_up({"fields": [declared]}).values()
    assert read(declared, value, types={name: base}).values == {"v": expected}
    for unknown_types in ({}, {name: ""}):
        with pytest.raises(Unreadable, match=f"the column v has the type {name}, of which neither"):
            read(declared, value, types=unknown_types)


def test_a_length_of_bits_that_no_type_has_is_refused() -> None:
    with pytest.raises(Unreadable, match="2,000,000,000 bits"):
        read(field("bytes", "data.Bits", "BIT", length="2000000000"), "BQA=")


def test_bits_of_a_domain_whose_length_debezium_leaves_out_are_refused() -> None:
    with pytest.raises(Unreadable, match="bit varying"):
        read(field("bytes", "data.Bits", "D_V", length="12"), "BQ==", types={"D_V": "VARBIT"})


@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        (field("int32", source="D_V"), 5, 5),
        (field("string", "data.Enum", "MOOD"), "glad", "glad"),
        (field("string", "data.Json", "D_V"), '{"a":"1"}', {"a": "1"}),
        (field("array", source="D_V", items={"type": "int32"}), [5], [5]),
        (field("bytes", source="BYTEA"), "AP8=", "AP8="),
        (field("array", source="_BYTEA", items={"type": "bytes"}), ["AP8="], ["AP8="]),
    ],
)
def test_types_are_not_looked_up_where_the_schema_says_what_values_are(
    declared: dict[str, Any], value: Any, expected: Any
) -> None:
    assert types_to_look_up({"fields": [declared]}) == {}
    assert as_json(read(declared, value)) == {"v": expected}


def test_text_of_a_type_that_is_not_known_is_read_if_it_is_no_number() -> None:
    assert read(field("string", source="D_V"), "a@b.example").values == {"v": "a@b.example"}


@pytest.mark.parametrize(
    ("declared", "unchanged_mark"),
    [
        (field("string", "data.Json", "D_V"), MARK),
        (field("bytes", source="D_V"), base64.b64encode(MARK.encode()).decode()),
    ],
)
def test_an_unchanged_value_of_a_domain_is_left_out(declared: dict[str, Any], unchanged_mark: str) -> None:
    assert read(declared, unchanged_mark, partial=True, types={"D_V": "BYTEA"}) == Row({}, ["v"])


def test_debezium_names_types_that_the_schema_does_not_tell() -> None:
    named = re.compile(NAMED_TYPES, re.IGNORECASE)
    prefix = "public.orders."
    assert "," not in NAMED_TYPES, "Debezium splits there"
    for name in (
        "bytea",
        "bit",
        "hstore",
        "_int4",
        "money",
        "d_email",
        '"other"."d_email"',
        "region",
        "pricerange",
    ):
        assert named.fullmatch(prefix + name), name
    for name in ("int4", "text", "timestamptz", "bool", "int4range", "datemultirange", "serial", "jsonb"):
        assert not named.fullmatch(prefix + name), name
