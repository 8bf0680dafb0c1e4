"""Changes of a row are known as those of one row, whatever form the texts of its key have."""

import json
import re
from zlib import crc32

import psycopg
import pytest
from tests.support.postgres.postgres_table import PostgresTable

from hifi.delivery.kind import OutboundEvent
from hifi.runtime import exact_json
from hifi_postgres.declaration import PostgresSettings
from hifi_postgres.destination.column_type import ColumnType
from hifi_postgres.destination.key_form import earlier_key_form, key_form
from hifi_postgres.destination.statements import RowChange, TableStatements
from hifi_postgres.destination.values import column_text

CATEGORIES = {
    "N": "int8 numeric float4 float8 money",
    "B": "bool",
    "D": "date time timetz timestamp timestamptz",
}


def column(name: str) -> ColumnType:
    category = next((category for category, names in CATEGORIES.items() if name in names.split()), "U")
    return ColumnType(name, name, name, category)


def statements(key_type: str) -> TableStatements:
    table = TableStatements(
        PostgresSettings.model_validate(
            {
                "url": {"env": "URL"}, "table": "t", "columns": {"id": "id"}, "key": ["id"], "tombstones": "gone",
                "delete_when": {"op": "d"},
            }
        )
    )  # fmt: skip
    types = {"id": key_type, "hifi_log": "uuid", "hifi_partition": "int4", "hifi_offset": "int8"}
    types["hifi_accepted"] = "timestamptz"
    table.use_types(
        {
            name: ColumnType(sql, sql, sql, "N" if sql == "int4" else column(sql).category)
            for name, sql in types.items()
        }
    )
    return table


def changes(key_type: str, first: object, second: object) -> list[RowChange]:
    """The changes of a batch that writes a row, and then deletes it."""
    return rows_of(statements(key_type), (first, "u"), (second, "d"))


def rows_of(table: TableStatements, *keys: tuple[object, str]) -> list[RowChange]:
    """The changes of a batch with these keys and operations."""
    events = [
        OutboundEvent(
            json.dumps({"id": key, "op": op}).encode(), "application/json", {}, b"k", "0a" * 16, 0, offset, 1
        )
        for offset, (key, op) in enumerate(keys)
    ]
    return table.rows(table.changes(events))


EQUAL = [
    ("int8", 1, 1.0),
    ("numeric", "nan", "NaN"),
    ("numeric", "inf", "Infinity"),
    ("money", "1.5", 1.50),
    ("float8", 1, 1.0),
    ("float8", "0.1", "0.1000000000000000055"),
    ("float8", "-0", 0),
    ("float8", "-inf", "-Infinity"),
    ("float4", "0.1", "0.100000001"),
    ("bool", True, "t"),
    ("bool", False, " OFF "),
    ("bool", "yes", "1"),
    ("date", "2026-07-01", "2026-07-01T00:00:00Z"),
    ("date", "20260701", "002026-07-01"),
    ("date", "Infinity", "infinity"),
    ("time", "12:00", "T12:00:00.000Z"),
    ("timetz", "12:00:00+02", "120000.0+02:00"),
    ("timetz", "12:00:00", "12:00:00-00:00"),
    ("timestamp", "2026-07-01T12:00:00", "2026-07-01 14:00:00.0+02"),
    ("timestamptz", "2026-07-01T12:00:00Z", "2026-07-01T12:00:00+00:00"),
    ("timestamptz", "2026-07-01", "2026-06-30 22:30:00.000000-0130"),
    ("timestamptz", "2026-07-01T24:00:00Z", "2026-07-02"),
    ("timestamptz", "2026-06-30T23:59:60Z", "2026-07-01"),
    ("timestamptz", "0001-01-01T00:00:00+01", "0001-12-31 23:00:00+00 BC"),
    ("timestamptz", "9999-12-31T23:00:00-01", "10000-01-01 00:00:00+00"),
    ("timestamptz", "2026-07-01T12:00:00.1234567Z", "2026-07-01T12:00:00.123457Z"),
    ("timestamptz", "2026-07-01T12:00:00.000000Z", "2026-07-01 12:00:00+00"),
    ("timestamptz", "2026-07-01T12:00:00.120000Z", "2026-07-01T12:00:00.12"),
    ("timestamp", "2026-07-01T12:00:00.120000Z", "2026-07-01 12:00:00.12"),
    ("bytea", "YWs=", r"\x616B"),
    ("inet", "10.0.0.1", "10.0.0.1/32"),
    ("inet", "2001:DB8::1", "2001:db8:0:0:0:0:0:1"),
    ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc999c0b4ef8bb6d6bb9bd380a11"),
]


@pytest.mark.parametrize(("key_type", "first", "second"), EQUAL)
def test_a_row_that_is_written_and_then_deleted_with_another_text_of_its_key_is_deleted(
    key_type: str, first: object, second: object
) -> None:
    write, delete = changes(key_type, first, second)
    assert (write.deletes, delete.deletes) == (False, True)
    assert write.text("event.key") == delete.text("event.key")


@pytest.mark.parametrize(
    ("key_type", "first", "second"),
    [
        ("float8", 1, 1.5),
        ("float4", "16777215", "16777214"),
        ("bool", "on", "off"),
        ("date", "2026-07-01", "2026-07-02"),
        ("date", "0044-03-15", "0044-03-15 BC"),
        ("date", "infinity", "-infinity"),
        ("time", "00:00", "24:00"),
        ("timetz", "12:00:00+00", "13:00:00+01"),
        ("timestamptz", "2026-07-01T12:00:00Z", "2026-07-01T12:00:00+02:00"),
        ("timestamptz", "2026-07-01T12:00:00.000001Z", "2026-07-01T12:00:00Z"),
        ("bytea", r"\x6162", r"\x6163"),
        ("inet", "10.0.0.1", "10.0.0.1/24"),
    ],
)
def test_different_keys_have_different_forms(key_type: str, first: object, second: object) -> None:
    delete, write = changes(key_type, first, second)
    assert delete.text("event.key") != write.text("event.key")


@pytest.mark.parametrize(
    ("key_type", "text"),
    [
        ("int8", "5"),
        ("float8", "1.5"),
        ("float4", "0.1"),
        ("bool", "true"),
        ("date", "2026-07-01"),
        ("date", "0044-03-15 BC"),
        ("date", "infinity"),
        ("time", "12:00:00.5"),
        ("timestamp", "2026-07-01T12:00:00"),
        ("timestamptz", "2026-07-01T12:00:00.123456Z"),
        ("timestamptz", "-infinity"),
        ("bytea", r"\x6162"),
        ("inet", "10.0.0.1"),
        ("date", "2026-02-30"),
        ("inet", "nowhere"),
        ("timestamptz", "2026-07-01x"),
    ],
)
def test_a_usual_text_is_its_own_form(key_type: str, text: str) -> None:
    assert key_form(text, column(key_type)) == text


@pytest.mark.parametrize(
    ("key_type", "text", "form", "earlier_form"),
    [
        ("timestamptz", "2026-07-01T12:00:00.000000Z", "2026-07-01T12:00:00Z", "2026-07-01T12:00:00.000000Z"),
        (
            "timestamptz",
            "2026-07-01T12:00:00.120000Z",
            "2026-07-01T12:00:00.12Z",
            "2026-07-01T12:00:00.120000Z",
        ),
        ("money", "12.50", "12.5", "12.50"),
        ("bool", "yes", "true", "yes"),
        ("numeric", "12.50", "12.5", "12.5"),
        ("numeric", "nan", "NaN", "nan"),
        ("bpchar", "a ", "a", "a"),
        ("text", "a ", "a ", "a "),
    ],
)
def test_a_tombstone_of_the_release_before_has_the_form_of_that_release(
    key_type: str, text: str, form: str, earlier_form: str
) -> None:
    forms = key_form(text, column(key_type)), earlier_key_form(text, column(key_type))
    assert forms == (form, earlier_form)


WHOLE_SECOND, SAME_FORM = "2026-07-01T12:00:00.000000Z", "2026-07-01T12:00:00.123456Z"
FORM_KEY, EARLIER_KEY = '["2026-07-01T12:00:00Z"]', f'["{WHOLE_SECOND}"]'


def test_a_late_write_also_looks_for_the_tombstone_that_the_release_before_wrote() -> None:
    table = statements("timestamptz")
    rows = rows_of(table, (WHOLE_SECOND, "u"), (SAME_FORM, "u"))
    (execution,) = table.executions(rows)
    superseded = table.superseded(rows)
    assert superseded is not None
    for statement, parameters in (execution, superseded):
        assert b'key IN (event."event.key"::text, event."event.earlier_key"::text)' in statement
        assert sorted(json.loads(f"[{parameters[-1][1:-1]}]".replace("NULL", '""'))) == ["", EARLIER_KEY]


def test_where_the_release_before_wrote_the_same_key_nothing_else_is_looked_for() -> None:
    table = statements("timestamptz")
    rows = rows_of(table, (SAME_FORM, "u"))
    for execution in (*table.executions(rows), table.superseded(rows)):
        assert execution is not None
        assert b"event.earlier_key" not in execution.statement
        assert b'key = event."event.key"::text' in execution.statement
        assert execution.statement.count(b"%s") == len(execution.parameters)


def test_a_change_locks_the_key_also_as_the_release_before_locks_it() -> None:
    """So the two exclude each other while instances of both run."""
    table = statements("timestamptz")
    for operation, is_alone in (("u", "False"), ("d", "True")):
        locks = table.locks(rows_of(table, (WHOLE_SECOND, operation)))
        assert locks is not None
        buckets = sorted({crc32(key.encode()) % 256 for key in (FORM_KEY, EARLIER_KEY)})
        elements = [",".join(f'"{text}"' for text in texts) for texts in (buckets, [is_alone] * len(buckets))]
        assert [*locks.parameters] == [f"{{{text}}}" for text in elements]


def test_a_delete_writes_the_tombstone_of_the_form_alone() -> None:
    table = statements("timestamptz")
    (execution,) = table.executions(rows_of(table, (WHOLE_SECOND, "d")))
    assert execution.parameters[-1] == '{"' + FORM_KEY.replace('"', '\\"') + '"}'
    assert b"event.earlier_key" not in execution.statement


@pytest.mark.parametrize("key_type", ["float8", "date", "time", "timestamptz", "inet", "bytea", "bool"])
@pytest.mark.parametrize(
    "text",
    ["", "1" * 100_000, "2026-07-01T" + "1" * 100_000, "1e999999999", "9" * 400, "11:11:11." + "1" * 9999],
)
def test_a_text_that_the_type_does_not_have_is_no_error(key_type: str, text: str) -> None:
    form = key_form(text, column(key_type))
    assert form is not None
    assert re.search(r"\s", form) is None


def test_postgresql_finds_the_texts_of_a_key_and_their_form_equal(postgres: PostgresTable) -> None:
    with psycopg.connect(postgres.url, options="-c TimeZone=UTC") as connection:
        for key_type, *values in EQUAL:
            key_column = column(key_type)
            column_texts = [column_text(exact_json.loads(json.dumps(value)), key_column) for value in values]
            cast = key_column.cast_to(key_type)
            query = f"SELECT bool_and(t::{cast} = %s::text::{cast}) FROM unnest(%s::text[]) AS t"
            for form in {key_form(text, key_column) for text in column_texts}:
                assert connection.execute(query.encode(), [form, column_texts]).fetchone() == (True,), (
                    key_type,
                    form,
                )
