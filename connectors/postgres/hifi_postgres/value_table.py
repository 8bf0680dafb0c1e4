"""Representations of JSON values in the columns of a PostgreSQL destination, with an example of each. Pure.

docs/destinations.md has it as a table, and tests write each example to a real server.
"""

from typing import Final, NamedTuple


class ValueRow(NamedTuple):
    """A kind of values in a type of columns.

    Attributes:
        value: what it is in JSON.
        column: type of the column.
        outcome: `exact`, `lossy: ` and how, or `refused`.
        example: JSON text.
        stored: text of the example in the column; None: it is refused.
    """

    value: str
    column: str
    outcome: str
    example: str
    stored: str | None


VALUES: Final = (
    ValueRow("number", "numeric", "exact", "12345678901234567890.10", "12345678901234567890.10"),
    ValueRow("number", "numeric(6,2)", "lossy: rounded to the scale of the column", "2.345", "2.35"),
    ValueRow("whole number", "bigint", "exact", "9223372036854775807", "9223372036854775807"),
    ValueRow("whole number too large for the type", "integer", "refused", "2147483648", None),
    ValueRow("number with a fraction", "integer", "refused", "1.5", None),
    ValueRow("number with a fraction", "double precision", "lossy: the nearest value", "0.1000", "0.1"),
    ValueRow("whole number that the type has", "double precision", "exact", "16777216", "16777216"),
    ValueRow("whole number that the type lacks", "real", "refused", "16777217", None),
    ValueRow("number", "money", "lossy: rounded to its scale", "1234.505", "$1,234.51"),
    ValueRow("number", "text", "exact", "1e21", "1000000000000000000000"),
    ValueRow("number", "boolean", "refused", "1", None),
    ValueRow("truth value", "boolean", "exact", "true", "true"),
    ValueRow("truth value", "text", "exact", "true", "true"),
    ValueRow("truth value", "integer", "refused", "true", None),
    ValueRow("text", "text", "exact", '"Zoë"', "Zoë"),
    ValueRow("text that is too long", "varchar(2)", "refused", '"abc"', None),
    ValueRow("text with U+0000", "text", "refused", '"a\\u0000"', None),
    ValueRow("text that the type reads", "integer", "exact", '"42"', "42"),
    ValueRow("any value but null", "jsonb", "exact", '"42"', '"42"'),
    ValueRow("object, list", "text", "exact (JSON)", '{"a":1}', '{"a":1}'),
    ValueRow("object, list", "integer", "refused", "[1]", None),
    ValueRow("list", "integer[]", "exact", "[1,null]", "{1,NULL}"),
    ValueRow("object of texts", "hstore", "exact", '{"a":"1"}', '"a"=>"1"'),
    ValueRow("base64 text, or `\\x…`", "bytea", "exact", '"AP8="', "\\x00ff"),
    ValueRow("other text", "bytea", "refused", '"ä"', None),
    ValueRow("time with a zone", "timestamptz", "exact", '"2026-07-01T12:00:00+02:00"', "2026-07-01 10:00:00+00"),
    ValueRow("time without a zone", "timestamptz", "exact (as UTC)", '"2026-07-01 12:00"', "2026-07-01 12:00:00+00"),
    ValueRow("time with a zone", "timestamp", "exact (in UTC)", '"2026-07-01T12:00:00+02:00"', "2026-07-01 10:00:00"),
    ValueRow(
        "time", "timestamp(0)", "lossy: rounded to the precision of the column", '"2026-07-01T12:00:00.6"',
        "2026-07-01 12:00:01",
    ),
    ValueRow("date with a time of day", "date", "refused", '"2026-07-01T12:00:00Z"', None),
    ValueRow("time with a zone", "time", "refused", '"12:00:00+02:00"', None),
    ValueRow("date or time that is not ISO 8601", "date", "refused", '"02/03/2026"', None),
    ValueRow("interval in ISO 8601", "interval", "exact", '"P1Y2M3DT4H"', "1 year 2 mons 3 days 04:00:00"),
    ValueRow("interval with a finer part", "interval year to month", "refused", '"P1Y2M3D"', None),
    ValueRow("null", "any type", "exact", "null", None),
)  # fmt: skip


def markdown() -> str:
    """The table for the page."""
    lines = ["| JSON | Column | Outcome |", "|---|---|---|"]
    lines += [f"| {row.value} | `{row.column}` | {row.outcome} |" for row in VALUES]
    return "\n".join(lines)
