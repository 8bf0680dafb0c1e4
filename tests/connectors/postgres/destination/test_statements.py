"""Which events delete the row of their key, and which tables take positions. Pure."""

import contextlib

import pytest

from hifi.delivery.kind import OutboundEvent
from hifi.runtime.errors import Missing
from hifi_postgres.declaration import PostgresSettings
from hifi_postgres.destination.column_type import ColumnType
from hifi_postgres.destination.statements import TableStatements


@pytest.mark.parametrize(
    ("declared", "value", "deletes"),
    [
        (True, "true", True),
        (True, "1", False),
        (True, "1.0", False),
        (False, "0", False),
        (False, "null", False),
        (1, "1", True),
        (1, "1.0", True),
        (1, "true", False),
        (0, "false", False),
        ("1", "1", False),
        (None, "null", True),
        (None, "false", False),
        ([1, {"a": False}], '[1, {"a": false}]', True),
        ([1, {"a": False}], '[true, {"a": false}]', False),
        ([1, {"a": False}], '[1, {"a": 0}]', False),
        ([1], "[1, 2]", False),
        ({"a": 1}, '{"a": 1, "b": 2}', False),
    ],
)
def test_an_event_deletes_by_the_value_and_not_by_one_of_another_type(
    declared: object, value: str, *, deletes: bool
) -> None:
    statements = TableStatements(
        PostgresSettings.model_validate(
            {
                "url": {"env": "URL"}, "table": "t", "columns": {"k": "k"}, "key": ["k"], "tombstones": "gone",
                "delete_when": {"change.gone": declared},
            }
        )
    )  # fmt: skip
    data = f'{{"k": 1, "change": {{"gone": {value}}}}}'.encode()
    (change,) = statements.changes([OutboundEvent(data, "application/json", {}, b"k", "0a" * 16, 0, 1, 1)])
    assert change.deletes is deletes


def test_a_column_gets_the_content_type_as_it_gets_other_attributes() -> None:
    statements = TableStatements(
        PostgresSettings.model_validate(
            {
                "url": {"env": "URL"}, "table": "t", "columns": {"k": "k"}, "key": ["k"],
                "attributes": {"media": "datacontenttype", "id": "id", "none": "subject"},
            }
        )
    )  # fmt: skip
    event = OutboundEvent(b'{"k": 1}', "application/ld+json", {"id": "i1"}, b"k", "0a" * 16, 0, 1, 1)
    (change,) = statements.changes([event])
    assert change.values == [1, "application/ld+json", "i1", None]


@pytest.mark.parametrize(
    ("column", "column_type", "match"),
    [
        ("hifi_accepted", ("date", "D"), "has the type date, and .* wait until it has the type timestamptz"),
        ("hifi_partition", ("bool", "B"), "has the type bool, and .* wait until it has the type integer"),
        ("hifi_accepted", ("timestamptz", "D"), ""),
        ("hifi_offset", ("numeric", "N"), ""),
        ("hifi_log", ("text", "S"), ""),
    ],
)
def test_a_table_whose_columns_do_not_take_positions_waits_and_is_named(
    column: str, column_type: tuple[str, str], match: str
) -> None:
    statements = TableStatements(
        PostgresSettings.model_validate(
            {"url": {"env": "URL"}, "table": "t", "columns": {"k": "k"}, "key": ["k"]}
        )
    )
    types = {"k": ("text", "S"), "hifi_log": ("uuid", "U"), "hifi_partition": ("int4", "N")}
    types |= {"hifi_offset": ("int8", "N"), "hifi_accepted": ("timestamptz", "D"), column: column_type}
    expectation = pytest.raises(Missing, match=match) if match else contextlib.nullcontext()
    with expectation as caught:
        statements.use_types(
            {name: ColumnType(sql, sql, sql, category) for name, (sql, category) in types.items()}
        )
    assert statements.has_types is not bool(match)
    if caught is not None:
        assert f"column {column} of the table t" in str(caught.value)
