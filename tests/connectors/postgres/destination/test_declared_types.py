"""Which types of columns can become which ones with every value as it is."""

import pytest

from hifi.runtime.errors import Missing
from hifi_postgres.destination.column_type import ColumnType
from hifi_postgres.destination.declared_types import alterations, same_type, widens

SAME = [
    ("integer", "int"), ("bigint", "int8"), ("character varying(40)", "varchar(40)"), ("numeric(6,2)", "decimal(6, 2)"),
    ("numeric(6,0)", "numeric(6)"), ("timestamp(3) without time zone", "timestamp(3)"), ("character(1)", "char"),
    ("timestamp with time zone", "timestamptz"), ("integer[]", "int4[]"), ("text", "text"), ("jsonb", "jsonb"),
]  # fmt: skip
WIDER = [
    ("smallint", "int"), ("integer", "bigint"), ("smallint", "numeric"), ("bigint", "numeric"), ("real", "float8"),
    ("character varying(40)", "varchar(41)"), ("character varying(40)", "varchar"), ("character varying(40)", "text"),
    ("character varying", "text"), ("numeric(6,2)", "numeric(7,3)"), ("numeric(6,2)", "numeric"),
]  # fmt: skip
OTHER = [
    ("bigint", "integer"), ("integer", "numeric(9,0)"), ("numeric", "numeric(9,2)"), ("numeric(6,2)", "numeric(7,4)"),
    ("text", "varchar(40)"), ("character varying", "varchar(40)"), ("double precision", "numeric"), ("text", "jsonb"),
    ("integer[]", "bigint[]"), ("integer", "double precision"), ("date", "timestamptz"), ("character(3)", "text"),
    ("timestamp(3) without time zone", "timestamp"), ("integer", "text"),
]  # fmt: skip


@pytest.mark.parametrize(("column_type", "declared"), SAME)
def test_names_of_one_type_are_the_same(column_type: str, declared: str) -> None:
    assert same_type(column_type, declared)
    assert [*alterations("t", {"v": column(column_type)}, {"v": declared})] == []


@pytest.mark.parametrize(("column_type", "declared"), WIDER)
def test_a_type_with_every_value_is_wider(column_type: str, declared: str) -> None:
    assert widens(column_type, declared)
    assert not widens(declared, column_type)
    assert [*alterations("t", {"v": column(column_type)}, {"v": declared})] == [("v", declared)]


@pytest.mark.parametrize(("column_type", "declared"), OTHER)
def test_another_type_waits_and_is_named(column_type: str, declared: str) -> None:
    assert not widens(column_type, declared)
    with pytest.raises(Missing, match="the column v of the table t has the type") as caught:
        [*alterations("t", {"v": column(column_type)}, {"v": declared})]
    assert column_type in str(caught.value)
    assert declared in str(caught.value)


def test_a_missing_column_is_added() -> None:
    assert [*alterations("t", {"k": column("text")}, {"v": "numeric(6,2)"})] == [("v", "numeric(6,2)")]


def column(declared: str) -> ColumnType:
    return ColumnType(declared, declared, declared, "U")
