"""Values of columns of Iceberg tables: exact, or null; real Spark."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from hifi.pipe.model import SqlType
from hifi.spark.spark_session import local_spark
from hifi_cli.reference.value_types import ICEBERG
from hifi_iceberg.declaration import IcebergSettings, LakeTable
from hifi_lake.batch.table_rows import DELETES, ROW, with_rows

SCHEMA = (
    "value binary, headers array<struct<key string, value binary>>, accepted_us bigint, seq string,"
    " partition int, raw bigint"
)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark() as session:
        session.sparkContext.setLogLevel("OFF")
        yield session


def stored_values(spark: SparkSession, kind: SqlType, texts: list[str]) -> list[str | None]:
    """The values of a column, as Spark writes them as text."""
    settings = IcebergSettings(warehouse="/x", table="shop.orders", partition="none")
    table = LakeTable("p", "lake", settings, {"v": kind})
    headers: list[Any] = []
    records = [
        (f'{{"v":{text}}}'.encode(), headers, 0, "s", 0, raw_offset) for raw_offset, text in enumerate(texts)
    ]
    rows = with_rows(spark.createDataFrame(records, SCHEMA), table, "0a" * 16)
    return [row[0] for row in rows.selectExpr(f"cast({ROW}.v as string)").collect()]


def test_a_value_is_stored_as_the_table_of_types_says(spark: SparkSession) -> None:
    for type_row in ICEBERG:
        written_texts = [text for text, _ in type_row.writes]
        expected = [value for _, value in type_row.writes]
        assert stored_values(spark, SqlType(type_row.declared), written_texts) == expected, type_row.types


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (SqlType.INT, {"5": "5", "5.0": "5", "1e3": "1000", '"7"': "7", "1.5": None, '"1.5"': None, "2147483648": None,
                       "true": None, "null": None, "[1]": None}),
        (SqlType.BIGINT, {"9223372036854775807": "9223372036854775807", "9223372036854775808": None, "0.5": None,
                          "5.0000000000000000000001": None,
                          "9007199254740993.0": "9007199254740993"}),
        (SqlType.DOUBLE, {"0.10": "0.1", '"NaN"': "NaN", '"-Infinity"': "-Infinity", "1e400": None, '"1e400"': None,
                          '"-INF"': "-Infinity", '" +5. "': "5.0", '".5E-1"': "0.05", '"5d"': None, '"7f"': None,
                          '"0x1p3"': None}),
        (SqlType.STRING, {"1.10": "1.10", "18446744073709551616": "18446744073709551616", '"ä"': "ä",
                          "123456789012345678901234.567890123": "123456789012345678901234.567890123",
                          "9" * 1500 + ".50e7": "9" * 1500 + ".50e7", '{"a": 1e400}': '{"a":1e400}',
                          '"123456789012345678901234.50"': "123456789012345678901234.50",
                          '{"a": [1.5]}': '{"a":[1.5]}', '{"a": [1.10, 1e3]}': '{"a":[1.10,1e3]}', "true": "true"}),
        (SqlType.BOOLEAN, {"true": "true", '"false"': "false", '" TRUE "': "true", '"x"': None, "1": None,
                           '"yes"': None}),
        (SqlType.DATE, {'" 2026-07-01 "': "2026-07-01", '"02/03/2026"': None, '"2026-07-01 xyz"': None, "2026": None,
                        '"2026-07"': None, '"260701"': None, '"2026-07-01 00:30:00+02"': "2026-07-01",
                        '"0000-12-31"': None, '"0001-01-01"': "0001-01-01", '"9999-12-31"': "9999-12-31"}),
        (SqlType.TIMESTAMP, {'"2026-07-01T12:00:00.123456+02:00"': "2026-07-01 10:00:00.123456",
                             '"2026-07-01T12:00:00"': "2026-07-01 12:00:00", '"x"': None,
                             '"2026-07-01 12:00:00Z"': "2026-07-01 12:00:00",
                             '"2026-07-01T12:00:00.5-0200"': "2026-07-01 14:00:00.5",
                             '"2026-07-01"': "2026-07-01 00:00:00", "2026": None, '"2026-07"': None,
                             '"12:30"': None, '"T12:30:00Z"': None, '"2026-07-01T12:00:00 CET"': None,
                             '"9999-12-31T23:59:59-05:00"': None, '"0001-01-01T00:00:00+14:00"': None,
                             '"0000-01-01"': None, '"0001-01-01T00:00:00Z"': "0001-01-01 00:00:00",
                             '"9999-12-31T23:59:59.999999Z"': "9999-12-31 23:59:59.999999"}),
    ],
)  # fmt: skip
def test_a_value_is_stored_exactly_or_as_null(
    spark: SparkSession, kind: SqlType, values: dict[str, str | None]
) -> None:
    assert dict(zip(values, stored_values(spark, kind, list(values)), strict=True)) == values


def test_bytes_that_no_reader_of_a_file_could_decode_are_not_stored(spark: SparkSession) -> None:
    settings = IcebergSettings(
        warehouse="/x", table="shop.orders", partition="none", attributes={"subject": "subject"}
    )
    table = LakeTable("p", "lake", settings, {"v": SqlType.STRING})
    record = (b'{"v":"a\xffb"}', [("ce_subject", b"c\xffd")], 0, "s", 0, 0)
    rows = with_rows(spark.createDataFrame([record], SCHEMA), table, "0a" * 16)
    row = rows.select(f"{ROW}.v", f"{ROW}.subject").collect()[0]
    assert tuple(row) == (None, "c\N{REPLACEMENT CHARACTER}d")


LONG_NUMBER = "1" * 1500


@pytest.mark.parametrize(
    ("declared", "values"),
    [
        (True, {"true": True, "1": False, "1.0": False}),
        (False, {"false": True, "0": False, "null": False}),
        (1, {"1": True, "1.0": True, "1e0": True, "10e-1": True, "true": False, '"1"': False,
             "1.0000000000000000000000000000000000000001": False, "1e99999999999999999999": False}),
        (1.0, {"1": True, "1.0": True, "0.01e2": True}),
        (1.5, {"1.5": True, "1.50": True, "15e-1": True, "1.5000000000000000000001": False}),
        (0, {"-0.0": True, "0e5": True, "false": False}),
        ("1", {'"1"': True, "1": False}),
        ("\x1f", {'"\\u001f"': True, '"\\u001F"': True}),
        ({"b": 1, "a": 2}, {'{"a": 2, "b": 1.0}': True, '{"a": 2}': False, '{"a": 2, "b": 1, "c": 1}': False}),
        ([1, {"a": False}], {'[1, {"a": false}]': True, '[true, {"a": false}]': False, '[1, {"a": 0}]': False}),
        (None, {"null": True, "false": False, LONG_NUMBER: False, '"null"': False}),
        ("d", {'"d"': True, "null": False}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["op", "change.op"])
def test_an_event_deletes_by_the_value_however_it_is_written(
    spark: SparkSession, declared: Any, values: dict[str, bool], path: str
) -> None:
    deletes = deleting(spark, {path: declared}, [member(path, text) for text in values])
    assert dict(zip(values, deletes, strict=True)) == values


def test_an_event_deletes_if_all_values_are_there_and_none_else(spark: SparkSession) -> None:
    datas = {
        '{"id":1,"op":"d"}': True,
        '{"id":1,"op":"d","kept":null}': True,
        '{"id":1,"op":"d","kept":1}': False,
        '{"id":1,"op":"d","op":"u"}': False,
        '{"id":1,"change":{"op":"d"}}': False,
        '{"id":1,"op":"d"': False,
    }
    assert deleting(spark, {"op": "d", "kept": None}, list(datas)) == list(datas.values())


def test_the_content_type_is_an_attribute(spark: SparkSession) -> None:
    settings = IcebergSettings(
        warehouse="/x", table="shop.orders", partition="none", attributes={"media": "datacontenttype"}
    )
    table = LakeTable("p", "lake", settings, {"v": SqlType.STRING})
    headers = [[("content-type", b"application/ld+json")], [("ce_id", b"i1")]]
    records = [(b"{}", header_list, 0, "s", 0, raw) for raw, header_list in enumerate(headers)]
    rows = (
        with_rows(spark.createDataFrame(records, SCHEMA), table, "0a" * 16).select(f"{ROW}.media").collect()
    )
    assert [row[0] for row in rows] == ["application/ld+json", "application/json"]


def member(path: str, text: str) -> str:
    """Data with a JSON text at a path, beside a number that Spark's reader of JSON does not take."""
    for name in reversed(path.split(".")):
        text = f'{{"{name}":{text},"other":{LONG_NUMBER}}}'
    return text


def deleting(spark: SparkSession, delete_when: dict[str, Any], datas: list[str]) -> list[bool]:
    """Of each data whether it deletes the row of its key."""
    settings = IcebergSettings(
        warehouse="/x",
        table="shop.orders",
        partition="none",
        mode="upsert",
        key=["id"],
        delete_when=delete_when,
    )
    table = LakeTable("p", "lake", settings, {"id": SqlType.INT})
    headers: list[Any] = []
    records = [(data.encode(), headers, 0, "s", 0, raw_offset) for raw_offset, data in enumerate(datas)]
    rows = with_rows(spark.createDataFrame(records, SCHEMA), table, "0a" * 16)
    return [row[0] for row in rows.select(DELETES).collect()]
