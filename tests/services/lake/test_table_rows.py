"""Values of columns of Iceberg tables: exact, or null; real Spark."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from hifi.pipe.model import SqlType
from hifi.spark.spark_session import local_spark
from hifi_cli.reference.value_types import ICEBERG
from hifi_iceberg.declaration import IcebergSettings, LakeTable
from hifi_lake.batch.table_rows import ROW, with_rows

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
        texts = [text for text, _ in type_row.writes]
        expected = [value for _, value in type_row.writes]
        assert stored_values(spark, SqlType(type_row.declared), texts) == expected, type_row.types


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
                          '{"a": [1.5]}': '{"a":[1.5]}', "true": "true"}),
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
