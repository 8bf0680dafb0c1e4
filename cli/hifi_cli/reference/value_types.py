"""Conversions of the values of each format into the data of an event (JSON), and out of it. Pure.

docs/values.md has it as a table, and tests/values reads and writes each example with the real reader and writer. The
columns of PostgreSQL that hifi writes, and those whose changes Debezium reads, have tables of their own in
`hifi_postgres.value_table` and `hifi_debezium.type_table`.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

NEITHER: Final = "none"
"""Outcome in a direction that the format does not have."""


class ValueType(NamedTuple):
    """A type of one format.

    Attributes:
        types: as the page names them.
        data: their form in the data of an event.
        read: `exact`, `lossy: ` and how, `refused`, or `none`: hifi does not read the format.
        written: the same of writing.
        declared: the type of the examples, in the words of the format: SQL, JSON of an Avro schema, a type of Arrow.
        reads: values and the JSON text that they become; None: refused.
        writes: JSON texts and the values that they become; None: refused.
    """

    types: str
    data: str
    read: str
    written: str
    declared: Any = ""
    reads: Sequence[tuple[Any, str | None]] = ()
    writes: Sequence[tuple[str, Any]] = ()


def _both(*pairs: tuple[Any, str]) -> dict[str, Any]:
    """Examples that are the same in both directions."""
    return {"reads": pairs, "writes": [(text, value) for value, text in pairs]}


def _logical(base: str, logical: str, **attributes: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": logical, **attributes}


_NAN, _INFINITY = float("nan"), float("inf")
_AT: Final = datetime(2026, 7, 1, 12, 0, 0, 123456, UTC)
_MS: Final = datetime(2026, 7, 1, 12, 0, 0, 123000, UTC)
_LOCAL: Final = datetime(2026, 7, 1, 12, 0, 0, 123456)  # noqa: DTZ001 - it has no zone
_AT_TEXT: Final = '"2026-07-01T12:00:00.123456Z"'

JSON: Final = (
    ValueType("number", "number, as written", "exact", "exact", "",
            **_both(*((text, text) for text in ("1.10", "-0.0", "18446744073709551616", "1E-400", "9" * 60,
            "1E+309", "9" * 400)))),
    ValueType("text, truth value, null, object, list", "the same", "exact", "exact", "",
            **_both(*((text, text) for text in ('"Zoë"', '"\\u0000"', "true", "null", '{"b":1,"a":[2,{}]}')))),
    ValueType("a name twice", "as sent; where the pipe changes data the last", "exact", "exact; the last in a column",
            "", [('{"a":1,"a":2}', '{"a":1,"a":2}')], [('{"a":1,"a":2}', '{"a":2}')]),
    ValueType("`NaN`, `Infinity`", "", "refused", "refused", "", [("NaN", None), ("-Infinity", None)], [("NaN", None)]),
)  # fmt: skip
"""HTTP, Kafka and NDJSON."""

CSV: Final = (
    ValueType("value", "text", "exact", NEITHER, "",
            [("1.10", '"1.10"'), ("", '""'), ("null", '"null"'), ('"a\n""b"', '"a\\n\\"b"')]),
    ValueType("byte not of `encoding`", "", "refused", NEITHER, "", [(b"\xff", None)]),
)  # fmt: skip

AVRO: Final = (
    ValueType("`null`, `boolean`", "null, truth value", "exact", "exact", ["null", "boolean"],
            **_both((None, "null"), (True, "true"))),
    ValueType("`int`, `long`", "number", "exact", "exact", "long", **_both((2**63 - 1, "9223372036854775807"))),
    ValueType("number with a fraction, text", "for `long`", NEITHER, "refused", "long", (),
            [("1.5", None), ('"1"', None), ("9223372036854775808", None)]),
    ValueType("`float`, `double`", "number", "exact", "lossy: nearest value; whole numbers exact or refused",
            "double", [(0.1, "0.1"), (1e300, "1e+300")],
            [("0.1000", 0.1), ("9007199254740993", None), ("1e400", None)]),
    ValueType("`NaN`, `Infinity`", "text", "exact", "exact", "double",
            **_both((_NAN, '"NaN"'), (-_INFINITY, '"-Infinity"'))),
    ValueType("`string`, `enum`, `uuid`", "text", "exact", "exact", "string", **_both(("Zoë", '"Zoë"'))),
    ValueType("`bytes`, `fixed`", "base64", "exact", "exact", "bytes", **_both((b"\x00\xff", '"AP8="'))),
    ValueType("`decimal`", "text with all digits of the scale", "exact", "exact, or refused",
            _logical("bytes", "decimal", precision=20, scale=2),
            [(Decimal("1.50"), '"1.50"'), (b"\x7f" * 9, '"23519236993115487927.03"')],
            [('"1.50"', Decimal("1.50")), ("1.5", Decimal("1.50")), ('"0.001"', None), ('"NaN"', None)]),
    ValueType("`timestamp-micros`", "RFC 3339 in UTC", "exact", "lossy: cut to microseconds",
            _logical("long", "timestamp-micros"), [(_AT, _AT_TEXT)], [(_AT_TEXT.replace("Z", "999Z"), _AT)]),
    ValueType("`timestamp-millis`", "RFC 3339 in UTC", "exact", "lossy: cut to milliseconds",
            _logical("long", "timestamp-millis"), [(_MS, '"2026-07-01T12:00:00.123000Z"')], [(_AT_TEXT, _MS)]),
    ValueType("time without offset", "for `timestamp-…`", NEITHER, "refused", _logical("long", "timestamp-micros"), (),
            [('"2026-07-01T12:00:00"', None)]),
    ValueType("`local-timestamp-…`", "RFC 3339 without offset", "exact", "exact",
            _logical("long", "local-timestamp-micros"), **_both((_LOCAL, '"2026-07-01T12:00:00.123456"'))),
    ValueType("`date`", "`2026-07-01`", "exact", "exact", _logical("int", "date"), **_both((date(2026, 7, 1),
            '"2026-07-01"'))),
    ValueType("`time-micros`", "`12:00:00.500000`", "exact", "lossy: cut to microseconds",
            _logical("long", "time-micros"), [(time(12, 0, 0, 500000), '"12:00:00.500000"')],
            [('"12:00:00.5000009"', time(12, 0, 0, 500000))]),
    ValueType("times outside the years 1 to 9999", "", "refused", "refused", _logical("int", "date"),
            [(2**30, None)], [('"10000-01-01"', None)]),
    ValueType("other logical types (`timestamp-nanos`, …)", "the base type", "exact", "exact",
            _logical("long", "timestamp-nanos"), **_both((1, "1"))),
    ValueType("`record`, `map`, `array`", "object, list; of a key twice the last", "exact", "exact",
            {"type": "map", "values": "long"}, **_both(({"a": 1}, '{"a":1}'))),
    ValueType("union", "the value alone; a damaged index below 0 is read as the last branch or symbol",
            "lossy: without type name", "exact: the first type that keeps it", ["null", "float", "double"],
            [(("double", 0.1), "0.1")], [("0.1", 0.1), ("null", None)]),
)  # fmt: skip

PARQUET: Final = (
    ValueType("integers, signed or not", "number", "exact", "exact, or refused", "uint64",
            [(2**64 - 1, "18446744073709551615")],
            [("9223372036854775807", 2**63 - 1), ("5.0", 5), ("1.5", None), ("9223372036854775808", None)]),
    ValueType("floating-point numbers", "number", "exact",
            "lossy: nearest value; whole numbers exact or refused", "float64", [(0.1, "0.1")],
            [("0.1000", 0.1), ("9007199254740993", None), ("1e400", None)]),
    ValueType("`NaN`, `Infinity`", "text", "exact", "exact", "float64",
            **_both((_NAN, '"NaN"'), (_INFINITY, '"Infinity"'))),
    ValueType("boolean", "truth value", "exact", "exact", "bool", **_both((True, "true"))),
    ValueType("string, enum", "text", "exact", "exact", "string", [("Zoë", '"Zoë"')], [('"Zoë"', "Zoë"), ("1", None)]),
    ValueType("decimal", "text with all digits", "exact", "as a string", "decimal128(20, 10)",
            [(Decimal("0E-10"), '"0.0000000000"')], [('"0.0000000000"', "0.0000000000")]),
    ValueType("binary", "base64", "exact", "as a string", "binary", [(b"\x00\xff", '"AP8="')], [('"AP8="', "AP8=")]),
    ValueType("date, time", "`2026-07-01`, `12:00:00.5…`", "exact", "as a string", "date32",
            [(date(2026, 7, 1), '"2026-07-01"')], [('"2026-07-01"', "2026-07-01")]),
    ValueType("timestamp", "RFC 3339 in UTC", "exact; without zone as UTC", "as a string", "timestamp[us]",
            [(_LOCAL, _AT_TEXT)], [(_AT_TEXT, _AT_TEXT.strip('"'))]),
    ValueType("nanoseconds", "RFC 3339 in UTC", "lossy: cut to microseconds, before 1970 towards 1970", "as a string",
            "timestamp[ns]", [(1_782_907_200_123_456_789, _AT_TEXT)], [('"…789Z"', "…789Z")]),
    ValueType("duration", "ISO 8601", "exact", "as a string", "duration[us]",
            [(timedelta(days=1, microseconds=1), '"PT86400.000001S"')], [('"PT1S"', "PT1S")]),
    ValueType("times outside the years 1 to 9999, duplicate map keys", "", "refused", NEITHER, "timestamp[s]",
            [(2**40, None)]),
    ValueType("struct, map, list", "object, list", "exact", "as JSON text", "list", [([1, 2], "[1,2]")],
            [("[1.10,2]", "[1.10,2]")]),
)  # fmt: skip

POSTGRES: Final = (
    ValueType("`smallint`, `integer`, `bigint`", "number", "exact", "", "bigint", [("9223372036854775807",
            "9223372036854775807")]),
    ValueType("`numeric`", "text", "exact", "", "numeric", [("1e30", f'"1{"0" * 30}"'), ("'NaN'", '"NaN"')]),
    ValueType("`real`, `double precision`", "number, or text: `NaN`, `Infinity`", "exact", "", "float8",
            [("0.1::float8 + 0.2", "0.30000000000000004"), ("'-Infinity'", '"-Infinity"')]),
    ValueType("`money`", "text", "exact", "", "money", [("1234.5::numeric::money", '"1234.50"')]),
    ValueType("`boolean`", "truth value", "exact", "", "boolean", [("true", "true")]),
    ValueType("`text`, `varchar`, `uuid`, enums, `inet`, ranges, `bit`, `timetz`, …", "text", "exact", "", "text",
            [("'Zoë'", '"Zoë"')]),
    ValueType("`bytea`", "base64", "exact", "", "bytea",
            [("'\\x00ff'", '"AP8="'), ("repeat('x', 60)::bytea", f'"{"eHh4" * 20}"')]),
    ValueType("`json`, `jsonb`", "the JSON value", "exact", "", "jsonb", [("'[1.10, \"a\"]'", '[1.10,"a"]')]),
    ValueType("JSON `null`", "null", "lossy: as a null column", "", "jsonb", [("'null'", "null")]),
    ValueType("`date`, `time`, `timestamp`", "ISO 8601, `infinity`", "exact", "", "timestamp",
            [("'2026-07-01 12:00'", '"2026-07-01T12:00:00"'), ("'infinity'", '"infinity"')]),
    ValueType("`timestamptz`", "RFC 3339 in UTC", "exact", "", "timestamptz",
            [("'2026-07-01 12:00:00.123456+02'", '"2026-07-01T10:00:00.123456+00:00"')]),
    ValueType("`interval`", "ISO 8601", "exact", "", "interval", [("'1 day 2.5 s'", '"P1DT2.5S"')]),
    ValueType("arrays, composites", "list, object", "exact", "", "numeric[]", [("'{1.10,NaN,NULL}'",
            '[1.10,"NaN",null]')]),
    ValueType("`bytea[]`", "list of `\\x…`", "exact", "", "bytea[]", [("'{\"\\\\x00ff\"}'", '["\\\\x00ff"]')]),
)  # fmt: skip
"""Of a source `sql`."""

SPARK: Final = (
    ValueType("`string`", "text, else its JSON text",
            "exact", "exact", "string", [("1.10", '"1.10"'), ("9" * 2000, f'"{"9" * 2000}"'),
            ('{"a": 1e400}', '"{\\"a\\":1e400}"')]),
    ValueType("`int`, `bigint`", "whole number, also as text", "exact, else null", "exact", "bigint",
            [("9007199254740993.0", "9007199254740993"), ("1e3", "1000"), ("5.00000000000000000001", "null"),
             ("9223372036854775808", "null"), ("9" * 2000, "null")]),
    ValueType("`double`", "number, also as text", "lossy: nearest value", "exact; infinite values are null",
            "double", [("0.1000", "0.1"), ("1e400", "null"), ('"NaN"', "null")]),
)  # fmt: skip
"""Fields with a declared type (`enrich.fields`) in expressions; the data itself is not changed."""

ICEBERG: Final = (
    ValueType("`string`", "text, else its JSON text", NEITHER,
            "exact", "string", (),
            [('"Zoë"', "Zoë"), ("123456789012345678.250", "123456789012345678.250"), ("9" * 2000, "9" * 2000),
             ('{"a":[1.10]}', '{"a":[1.10]}')]),
    ValueType("`int`, `bigint`", "whole number, also as text", NEITHER, "exact, else null", "bigint", (),
            [("9007199254740993.0", "9007199254740993"), ("9223372036854775807", "9223372036854775807"), ("1.5", None),
             ("9223372036854775808", None)]),
    ValueType("`double`", "number, also as text", NEITHER, "lossy: nearest value; too large: null", "double", (),
            [("0.1000", "0.1"), ("1e400", None)]),
    ValueType("`NaN`, `Infinity`", "text", NEITHER, "exact", "double", (), [('"NaN"', "NaN"), ('"-Infinity"',
            "-Infinity")]),
    ValueType("`boolean`", "truth value, `true`, `false`", NEITHER, "exact, else null", "boolean", (),
            [("true", "true"), ('"x"', None)]),
    ValueType("`date`", "`2026-07-01`", NEITHER, "exact, else null; of a time its date", "date", (),
            [('"2026-07-01"', "2026-07-01"), ('"2026-07-01T12:00:00Z"', "2026-07-01"), ('"x"', None)]),
    ValueType("`timestamp`", "RFC 3339, without zone UTC", NEITHER, "lossy: cut to microseconds; else null",
            "timestamp",
            (), [('"2026-07-01T12:00:00.123456789+02:00"', "2026-07-01 10:00:00.123456"), ('"x"', None)]),
)  # fmt: skip

FORMATS: Final = {
    "JSON (HTTP, Kafka, NDJSON)": JSON,
    "CSV": CSV,
    "Avro": AVRO,
    "Parquet": PARQUET,
    "PostgreSQL": POSTGRES,
    "Spark (`enrich.fields`)": SPARK,
    "Iceberg": ICEBERG,
}
_SEE: Final = {"PostgreSQL": "[see](destinations.md#postgresql)"}
"""Format to what its rows say of writing."""


def markdown() -> str:
    """The table for the page."""
    lines = ["| Format | Type | In the data | Read | Written |", "|---|---|---|---|---|"]
    for name, rows in FORMATS.items():
        for index, row in enumerate(rows):
            cells = ("" if index else name, row.types, row.data, row.read, row.written or _SEE[name])
            lines.append(f"| {' | '.join(cells)} |")
    changes = "[see](sources.md#changes-of-a-postgresql-database)"
    lines.append(f"| Debezium | columns of PostgreSQL | {changes} | {changes} | {NEITHER} |")
    return "\n".join(lines)
