"""`Encoder` reads the output of `decode`; the error of a value that does not fit names its field."""

import io
import itertools
import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import fastavro
import orjson
import pytest
from fastavro.utils import generate_many
from hypothesis import given
from hypothesis import strategies as st

from hifi.avro.schema import InvalidSchema, read_schema
from hifi.runtime import exact_json
from hifi.runtime.errors import Rejected
from hifi_kafka.avro.ambiguity import ambiguous_unions
from hifi_kafka.avro.decode import decode
from hifi_kafka.avro.encode import Encoder


def logical_type(base: str, logical: str, **attributes: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": logical, **attributes}


def record(name: str = "R", **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field_name, "type": field_type} for field_name, field_type in fields.items()],
    }


EVERYTHING = record(
    a="null",
    b="boolean",
    c="int",
    d="long",
    f="double",
    g="string",
    h="bytes",
    i={"type": "enum", "name": "E", "symbols": ["X", "Y"]},
    j={"type": "fixed", "name": "F", "size": 3},
    k={
        "type": "array",
        "items": ["null", "long", {"type": "map", "values": "string"}, record("In", x="int")],
    },
    l=logical_type("bytes", "decimal", precision=12, scale=4),
    m=logical_type("long", "timestamp-micros"),
    n=logical_type("int", "date"),
    o=logical_type("long", "time-micros"),
    p=logical_type("string", "uuid"),
    q=logical_type("long", "local-timestamp-millis"),
    r=["null", "In"],
)
DECIMAL = logical_type("bytes", "decimal", precision=6, scale=2)
UUID_TEXT = "00000000-0000-0000-0000-00000000000a"
TREE = record("Tree", value="int", children={"type": "array", "items": "Tree"})


@pytest.mark.parametrize("tree", [EVERYTHING, TREE])
def test_a_value_that_was_decoded_is_encoded_to_the_same_bytes(tree: Any) -> None:
    schema = read_schema(json.dumps(tree))
    encode = Encoder(schema)
    uuid_forms = itertools.cycle(
        [UUID_TEXT, UUID_TEXT.replace("-", "").upper(), f"{{{UUID_TEXT}}}", f"urn:uuid:{UUID_TEXT}"]
    )
    values = (
        generate_many(schema.parsed, 50)
        if tree is EVERYTHING
        else [{"value": 1, "children": [{"value": 2, "children": []}]}]
    )
    for value in values:
        if tree is EVERYTHING:
            value["l"] = Decimal("-12345678.0001")  # those that are made up have too many digits
            value["p"] = next(uuid_forms)
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema.parsed, value)
        text = decode(schema, stream.getvalue())
        assert encode(orjson.loads(text)) == stream.getvalue(), text


@pytest.mark.parametrize(
    ("fields", "value", "pointer", "reason"),
    [
        ({"a": "int"}, {}, "/a", "missing"),
        ({"a": "int"}, {"a": 1, "b": 1}, "/b", "does not have the field"),
        ({"a": "int"}, {"a": True}, "/a", "no integer"),
        ({"a": "int"}, {"a": 2**31}, "/a", "32 bits"),
        ({"a": "long"}, {"a": 2**63}, "/a", "64 bits"),
        ({"a": "float"}, {"a": 1e39}, "/a", "too large"),
        ({"a": "string"}, {"a": 1}, "/a", "no text"),
        ({"a": "bytes"}, {"a": "!"}, "/a", "base64"),
        ({"a": ["null", "int"]}, {"a": "x"}, "/a", "no integer"),
        ({"a": ["int", "boolean"]}, {"a": "x"}, "/a", "none of int, boolean"),
        (
            {"a": record("In", x={"type": "array", "items": "int"})},
            {"a": {"x": [1, "2"]}},
            "/a/x/1",
            "no integer",
        ),
        ({"a": {"type": "map", "values": "int"}}, {"a": {"k/y": "2"}}, "/a/k~1y", "no integer"),
        (
            {"a": logical_type("bytes", "decimal", precision=4, scale=2)},
            {"a": "100.00"},
            "/a",
            "2 digits before",
        ),
        (
            {"a": logical_type("bytes", "decimal", precision=4, scale=2)},
            {"a": "0.001"},
            "/a",
            "2 digits after",
        ),
        ({"a": logical_type("long", "timestamp-millis")}, {"a": "2026-01-01T00:00:00"}, "/a", "no offset"),
        ({"a": logical_type("long", "timestamp-millis")}, {"a": "soon"}, "/a", "RFC 3339"),
        ({"a": logical_type("string", "uuid")}, {"a": "order-17"}, "/a", "no UUID"),
        ({"a": {"type": "enum", "name": "E", "symbols": ["X"]}}, {"a": "Z"}, "/a", "no symbol"),
    ],
)
def test_what_does_not_fit_names_the_field_and_none_of_its_values(
    fields: Any, value: Any, pointer: str, reason: str
) -> None:
    with pytest.raises(Rejected) as refusal:
        Encoder(read_schema(json.dumps(record(**fields))))(value)
    assert (refusal.value.reason, refusal.value.pointer) == ("avro-schema", pointer)
    assert reason in refusal.value.detail
    assert pointer in refusal.value.detail


def test_unknown_fields_are_dropped_if_that_is_asked_for() -> None:
    schema = read_schema(json.dumps(record(a="int")))
    assert Encoder(schema, "drop")({"a": 1, "b": 2}) == Encoder(schema)({"a": 1})


def test_values_that_are_nested_without_bound_are_refused_and_end_no_process() -> None:
    schema = read_schema(json.dumps(record("L", next=["null", "L"])))
    with pytest.raises(Rejected, match="too deeply"):
        decode(schema, b"\x02" * 100_000 + b"\0")
    nested: Any = None
    for _ in range(5000):
        nested = {"next": nested}
    with pytest.raises(Rejected, match="too deeply"):
        Encoder(schema)(nested)


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "array", "items": "null"}',
        '{"type": "array", "items": {"type": "record", "name": "R", "fields": []}}',
        '{"type": "record", "name": "9", "fields": []}',
        '{"type": "record", "name": "R"}',
        '["int", "int"]',
        '["int", ["null"]]',
        '{"type": "fixed", "name": "F", "size": -1}',
        '"Unknown"',
        "{",
        "3",
        "null",
        "[" * 100 + "]" * 100,
    ],
)
def test_what_is_no_schema_or_could_stand_for_endless_values_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        read_schema(text)


def test_records_that_stand_for_endless_values_without_bytes_are_refused() -> None:
    schema_texts = [json.dumps(record("R0", n="null"))]
    schema_texts += [
        json.dumps(record(f"R{level}", a=f"R{level - 1}", b=f"R{level - 1}")) for level in range(1, 40)
    ]
    for last_fields in ({"a": "R39"}, {"a": "R39", "x": "long"}, {"a": ["null", "R39"]}):
        with pytest.raises(InvalidSchema, match="more than 100 values without bytes"):
            read_schema(json.dumps(record("Last", **last_fields)), schema_texts)
    wide = record("Wide", **{f"n{number}": "null" for number in range(90)}, x="long")
    assert read_schema(json.dumps({"type": "array", "items": wide})).names
    with_bytes = [json.dumps(record("B0", n="int"))]
    with_bytes += [
        json.dumps(record(f"B{level}", a=f"B{level - 1}", b=f"B{level - 1}")) for level in range(1, 9)
    ]
    assert read_schema(json.dumps(record("Last", a="B8")), with_bytes).names


def test_named_types_that_contain_each_other_in_too_many_levels_are_refused() -> None:
    chain = [record("R0", n="int"), *(record(f"R{level}", a=f"R{level - 1}") for level in range(1, 2000))]
    with pytest.raises(InvalidSchema, match="too many levels"):
        read_schema(json.dumps(record("Last", a="R1999")), [json.dumps(chain)])
    assert read_schema(json.dumps(record("Last", a="R50")), [json.dumps(chain)]).names


DECIMAL = logical_type("bytes", "decimal", precision=10, scale=2)
DATE = logical_type("int", "date")
MICROS, LOCAL_MICROS = (
    logical_type("long", "timestamp-micros"),
    logical_type("long", "local-timestamp-micros"),
)
PRECISE = logical_type("bytes", "decimal", precision=20, scale=17)
XYZ = {"x": 1, "y": 2, "z": 3}


def encoded_and_read(branches: Any, value: Any, unknown: Any = "reject") -> Any:
    schema = read_schema(json.dumps(record(a=branches)))
    return exact_json.loads(decode(schema, Encoder(schema, unknown)({"a": value})))["a"]


@pytest.mark.parametrize(
    ("branches", "value", "expected"),
    [
        (["null", "float", "double"], 0.1, Decimal("0.1")),
        (["null", "float", "double"], 0.5, 0.5),
        (["null", "float", "double"], 16777217, 16777217),
        (["float", "double", "long"], 9007199254740993, 9007199254740993),
        (["int", "long"], 2**40, 2**40),
        (["double", "string"], Decimal("1.10"), Decimal("1.1")),
        (["double", PRECISE], Decimal("1.12345678901234567"), "1.12345678901234567"),
        ([record("P", x="int", y="int"), record("Q", x="int", y="int", z="int")], XYZ, XYZ),
        (
            [logical_type("long", "timestamp-millis"), "string"],
            "2026-01-01T00:00:00.123456Z",
            "2026-01-01T00:00:00.123456Z",
        ),
        ({"type": "array", "items": ["float", "double"]}, [0.5, 0.1], [0.5, Decimal("0.1")]),
        ([DATE, "string"], "20260701", "20260701"),
        ([MICROS, "string"], "2026-07-01T12:00:00+02:00", "2026-07-01T12:00:00+02:00"),
        ([MICROS, "string"], "2026-07-01T12:00:00.1234567Z", "2026-07-01T12:00:00.1234567Z"),
        ([MICROS, "string"], "2026-07-01T12:00:00.500+00:00", "2026-07-01T12:00:00.500000Z"),
        ([logical_type("long", "time-micros"), "string"], "12:00:00+02", "12:00:00+02"),
        ([LOCAL_MICROS, DATE], "2026-07-01", "2026-07-01"),
        (["double", "string"], "NaN", "NaN"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("unknown", ["reject", "drop"])
def test_a_union_takes_the_first_type_that_keeps_the_whole_value(
    branches: Any, value: Any, expected: Any, unknown: Any
) -> None:
    assert encoded_and_read(branches, value, unknown) == expected


@pytest.mark.parametrize(
    ("branches", "text"), [(["long", "double"], "-0.0"), (["long", "string"], "0"), ("int", "0")]
)
def test_minus_zero_is_a_floating_point_number_where_the_schema_has_them(branches: Any, text: str) -> None:
    assert str(encoded_and_read(branches, Decimal("-0"))) == text


@pytest.mark.parametrize(
    "logical",
    [DATE, MICROS, LOCAL_MICROS, logical_type("long", "time-micros"), logical_type("int", "time-millis")],
)
@given(
    local_time=st.datetimes(timezones=st.none() | st.timezones()),
    time_format=st.sampled_from(
        ["%Y-%m-%d", "%Y%m%d", "%G-W%V-%u", "%H:%M", "%H%M%S", "%H:%M:%S.%f", "%H:%M:%S%z"]
    ),
    suffix=st.sampled_from(["", "7", "Z", "z", "+02", "+00:00"]),
)
def test_a_text_that_a_logical_type_would_change_stays_text(
    logical: Any, local_time: datetime, time_format: str, suffix: str
) -> None:
    for text in (
        local_time.isoformat() + suffix,
        local_time.isoformat(" ") + suffix,
        local_time.strftime(time_format) + suffix,
    ):
        assert comparable(encoded_and_read([logical, "string"], text)) == comparable(text)


def comparable(text: str) -> str:
    """A text without what two texts of a time may differ in: zeros at the end of its fraction, `Z` for `+00:00`."""
    integer_part, point, fraction = text.removesuffix("Z").removesuffix("+00:00").partition(".")
    is_utc = text.endswith(("Z", "+00:00"))
    return f"{integer_part}{point and point + fraction.rstrip('0')}".removesuffix(".") + (
        "Z" if is_utc else ""
    )


@pytest.mark.parametrize("kind", ["time-micros", "time-millis"])
def test_a_time_of_day_with_an_offset_is_refused(kind: str) -> None:
    time_type = logical_type("int" if kind == "time-millis" else "long", kind)
    for text in ("12:00:00+02", "12:00:00-00:30"):
        with pytest.raises(Rejected, match="the time of day has an offset from UTC"):
            encoded_and_read(time_type, text)
    assert encoded_and_read(time_type, "12:00:00Z") == "12:00:00"


def test_what_no_type_keeps_whole_loses_the_least() -> None:
    branches = [record("P", x="int"), record("Q", x="int", y="int")]
    assert encoded_and_read(branches, {"x": 1, "y": 2, "z": 3}, "drop") == {"x": 1, "y": 2}


@given(st.integers(-(2**70), 2**70) | st.integers(-(2**54), 2**54))
def test_a_whole_number_is_kept_or_refused(number: int) -> None:
    for kind in ("int", "long", "float", "double"):
        with_fraction = Decimal(f"{number}.0")
        for value in (number, Decimal(number), with_fraction, with_fraction.normalize()):
            try:
                read_number = encoded_and_read(kind, value)
            except Rejected:
                continue
            digits = len(Decimal(value).as_tuple().digits)
            assert read_number == number or Decimal(f"{float(read_number):.{digits - 1}e}") == number


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("float", "16777217e1", None),
        ("float", "1.6777217e7", None),
        ("double", "9007199254740993e1", None),
        ("float", "16777216e1", Decimal(167772160)),
        ("double", "1e23", Decimal("1e23")),
        ("double", "1.7976931348623157e308", Decimal("1.7976931348623157e308")),
        ("float", "3.4028235e38", Decimal("3.4028234663852886e38")),
        ("float", "3.4028236e38", None),
        ("double", "1e9999999", None),
        ("long", "1e9999999", None),
        (DECIMAL, "1e9999999", None),
    ],
)
def test_a_whole_number_with_an_exponent_is_kept_or_refused(
    kind: Any, text: str, expected: Decimal | None
) -> None:
    value = exact_json.loads(text)
    if expected is None:
        with pytest.raises(Rejected, match="does not fit the Avro schema"):
            encoded_and_read(kind, value)
    else:
        assert encoded_and_read(kind, value) == expected


@given(
    st.decimals(min_value=Decimal("-99999999.99"), max_value=Decimal("99999999.99"), places=2),
    st.integers(0, 30),
)
def test_a_decimal_with_more_zeros_than_its_scale_is_kept(number: Decimal, zeros: int) -> None:
    for text in (f"{number:f}" + "0" * zeros, f"{number.normalize():E}"):
        for value in (text, exact_json.loads(text)):
            decoded_text = encoded_and_read(DECIMAL, value)
            assert Decimal(decoded_text) == number
            assert decoded_text.endswith(f"{number:f}"[-3:])


def test_a_decimal_with_other_digits_than_its_scale_and_a_text_that_is_none_are_refused() -> None:
    for text in ("0.001", "1.50" + "0" * 40 + "1", "100000000", "1_000", " 12", "\uff11\uff12", "NaN"):
        with pytest.raises(Rejected, match="does not fit the Avro schema"):
            encoded_and_read(DECIMAL, text)
    assert encoded_and_read(DECIMAL, "0e-40") == encoded_and_read(DECIMAL, "0e40") == "0.00"


@pytest.mark.parametrize(
    ("branches", "is_ambiguous"),
    [
        (["null", "float", "double"], False),
        (["int", "long", "boolean", "string"], False),
        (["string", {"type": "enum", "name": "E", "symbols": ["X"]}], False),
        (["string", "bytes"], True),
        (["bytes", {"type": "fixed", "name": "F", "size": 3}], True),
        ([record("P", x="int"), record("Q", x="string")], True),
        ([record("P", x="int"), record("Q", x="int", y="int")], False),
        ([record("P", x="int"), record("Q", x="int", y=["null", "int"])], True),
        ([record("P", x="int"), {"type": "map", "values": "int"}], True),
        ({"type": "array", "items": ["string", "bytes"]}, True),
        (record("In", x=["null", "string", "bytes"]), True),
    ],
)
def test_unions_that_json_cannot_tell_apart_are_named(branches: Any, is_ambiguous: bool) -> None:
    union_paths = ambiguous_unions(read_schema(json.dumps(record(a=branches))))
    assert bool(union_paths) is is_ambiguous
    assert all(text.startswith("/a") for text in union_paths)


@pytest.mark.parametrize(
    ("field_type", "default", "value"),
    [
        ("bytes", "\u00ff\u0000", "/wA="),
        ({"type": "fixed", "name": "F", "size": 2}, "a\u00ff", "Yf8="),
        (DECIMAL, "\u00ff\u0038", "-2.00"),
        (["bytes", "null"], "\u00ff", "/w=="),
        (["null", "bytes"], None, None),
        (["int", "string"], 5, 5),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], ["/w=="]),
        ({"type": "map", "values": "bytes"}, {"a": "\u00ff"}, {"a": "/w=="}),
        (record("In", b="bytes", n="int"), {"b": "\u00ff", "n": 1}, {"b": "/w==", "n": 1}),
        (record("In", b=["null", "bytes"]), {}, {"b": None}),
        (logical_type("long", "timestamp-millis"), 0, "1970-01-01T00:00:00Z"),
        ({"type": "enum", "name": "E", "symbols": ["X", "Y"]}, "Y", "Y"),
        ("string", "\u00ff", "\u00ff"),
        ("double", 1, 1.0),
    ],
)
def test_a_missing_field_gets_its_default(field_type: Any, default: Any, value: Any) -> None:
    fields = [{"name": "v", "type": field_type, "default": default}, {"name": "n", "type": "int"}]
    schema = read_schema(json.dumps({"type": "record", "name": "R", "fields": fields}))
    encoder = Encoder(schema)
    for _ in range(2):
        assert orjson.loads(decode(schema, encoder({"n": 1}))) == {"v": value, "n": 1}


def test_a_default_that_is_none_of_its_type_is_named() -> None:
    fields = [{"name": "v", "type": "bytes", "default": "\u0100"}]
    schema = read_schema(json.dumps({"type": "record", "name": "R", "fields": fields}))
    with pytest.raises(Rejected, match=r"/v does not fit .* the default of the schema is no bytes"):
        Encoder(schema)({})


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00"])
@pytest.mark.parametrize("logical", ["timestamp-millis", "timestamp-micros"])
def test_a_time_outside_of_the_years_that_are_read_is_refused(text: str, logical: str) -> None:
    encoder = Encoder(read_schema(json.dumps(logical_type("long", logical))))
    with pytest.raises(Rejected, match="outside of the years 1 to 9999"):
        encoder(text)
