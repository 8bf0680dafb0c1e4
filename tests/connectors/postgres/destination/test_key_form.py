"""Changes of a row are known as those of one row, whatever form the texts of its key have."""

import json
import re

import psycopg
import pytest
from tests.support.postgres.postgres_table import PostgresTable

from hifi.delivery.kind import OutboundEvent
from hifi_postgres.declaration import PostgresSettings
from hifi_postgres.destination.column_type import ColumnType
from hifi_postgres.destination.key_form import key_form
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
    events = [
        OutboundEvent(
            json.dumps({"id": key, "op": op}).encode(), "application/json", {}, b"k", "0a" * 16, 0, offset, 1
        )
        for offset, (key, op) in enumerate([(first, "u"), (second, "d")])
    ]
    table = statements(key_type)
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
            texts = [column_text(value, key_column) for value in values]
            cast = key_column.cast_to(key_type)
            query = f"SELECT bool_and(t::{cast} = %s::text::{cast}) FROM unnest(%s::text[]) AS t"
            for form in {key_form(text, key_column) for text in texts}:
                assert connection.execute(query.encode(), [form, texts]).fetchone() == (True,), (
                    key_type,
                    form,
                )
