"""Representations of PostgreSQL's types in events of changes, with an example of each. Pure.

docs/sources.md has it as a table, and tests read each example with a real Debezium.
"""

from typing import Any, Final, NamedTuple


class TypeRow(NamedTuple):
    """A type of columns.

    Attributes:
        types: as the page names them.
        form: in the data of an event.
        outcome: `exact`, `lossy: ` and how, or `refused`; a destination column of the same type has an equal value.
        sql: type of the example.
        example: text of a value.
        value: in the data of the event; None: the change is refused.
    """

    types: str
    form: str
    outcome: str
    sql: str
    example: str
    value: Any


TYPES: Final = (
    TypeRow("`smallint`, `integer`, `bigint`, `oid`", "number", "exact", "bigint", "9223372036854775807", 2**63 - 1),
    TypeRow("`numeric`", "text, also `NaN`, `Infinity`", "exact", "numeric", "NaN", "NaN"),
    TypeRow("`real`, `double precision`", "number, or text for `NaN`, `Infinity`", "exact", "float8", "0.1", 0.1),
    TypeRow("`money`", "text; of a snapshot below 10^13", "exact", "money", "1234.50", "1234.50"),
    TypeRow("`boolean`", "truth value", "exact", "boolean", "t", True),
    TypeRow("`text`, `varchar`, `char`, `citext`, `xml`, `uuid`, enums", "text", "exact", "text", "Zoë", "Zoë"),
    TypeRow("`bytea`", "base64", "exact", "bytea", "\\x00ff", "AP8="),
    TypeRow("`json`, `jsonb`", "the JSON, as written", "exact", "jsonb", '[1.10, "a"]', [1.1, "a"]),
    TypeRow("JSON `null`", "null", "lossy: as a null column", "jsonb", "null", "null"),
    TypeRow("`hstore`", "object of texts", "exact", "hstore", "a=>1", {"a": "1"}),
    TypeRow(
        "`date`", "`2026-07-01`; as PostgreSQL writes it: `infinity`, `BC`, years above 9999", "exact", "date",
        "infinity", "infinity",
    ),
    TypeRow("`time`", "`12:00:00.5`", "exact", "time", "12:00:00.5", "12:00:00.5"),
    TypeRow(
        "`timestamp`", "RFC 3339 without zone; else as `date`", "exact", "timestamp", "2026-07-01 12:00",
        "2026-07-01T12:00:00",
    ),
    TypeRow(
        "`timestamptz`", "RFC 3339 in UTC; else as `date`", "exact", "timestamptz", "2026-07-01 12:00+02",
        "2026-07-01T10:00:00.000000Z",
    ),
    TypeRow("dates before 1582-10-15 in a snapshot or an array", "", "refused", "date[]", "{1500-01-01}", None),
    TypeRow("`interval`", "ISO 8601", "exact", "interval", "1 day", "P0Y0M1DT0H0M0S"),
    TypeRow("`bit(n)`", "text of `0` and `1`", "exact", "bit(3)", "101", "101"),
    TypeRow(
        "ranges, multiranges, `inet`, `cidr`, `macaddr`, `ltree`, `tsvector`, `point`, `box`, `pg_lsn`, composites, …",
        "text, as PostgreSQL reads it", "exact", "int4range", "[1,5)", "[1,5)",
    ),
    TypeRow("arrays of these", "list", "exact", "text[]", '{a,NULL,"NULL"}', ["a", None, "NULL"]),
    TypeRow("domains (see below)", "as the type below", "exact", "digest", "\\x00ff", "AP8="),
    TypeRow("arrays of domains over `bytea`, `money` or JSON", "", "refused", "digest[]", '{"\\\\x00ff"}', None),
    TypeRow("arrays of several dimensions, arrays of nulls alone", "", "refused", "integer[]", "{{1},{2}}", None),
    TypeRow("`numeric[]` with `NaN`, enum arrays with null", "null", "lossy: null", "numeric[]", "{NaN}", "null"),
    TypeRow("arrays of `interval`, `money`, `xml`, `name`", "", "lossy: absent", "interval[]", "{1 day}", "absent"),
    TypeRow("`timetz`, `bit varying`", "", "refused", "timetz", "12:00+02", None),
)  # fmt: skip


def markdown() -> str:
    """The table for the page."""
    lines = ["| Column | In the data | Outcome |", "|---|---|---|"]
    lines += [f"| {row.types} | {row.form} | {row.outcome} |" for row in TYPES]
    return "\n".join(lines)
