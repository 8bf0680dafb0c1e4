"""Values of Parquet and Avro objects keep their digits, times and names at every depth; a bad row is refused alone."""

import bz2
import gzip
import io
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import orjson
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from hifi_objects.source.rows.batches import RowBatches
from hifi_objects.source.rows.binary import tolerate_bad_values
from hifi_objects.source.rows.row import ObjectRow
from hifi_objects.source.rows.row_format import RowFormat

tolerate_bad_values()


def rows(file_format: str, content: bytes, max_bytes: int = 100_000, skip: int = 0) -> list[ObjectRow]:
    batches = RowBatches(RowFormat(file_format, ",", "utf-8", max_bytes), io.BytesIO(content), "x", skip)
    object_rows: list[ObjectRow] = []
    while not batches.complete:
        object_rows += batches.next(500)
    return object_rows


def parquet_of(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table, sink, **options)
    return sink.getvalue()


def column(values: list[Any], data_type: pa.DataType) -> list[Any]:
    """The values as they are read, of a column with this type."""
    object_rows = rows("parquet", parquet_of(pa.table({"v": pa.array(values, data_type)})))
    assert {row.reason for row in object_rows} == {""}
    return [orjson.loads(row.data or b"")["v"] for row in object_rows]


NS = 1_767_225_600_123_456_789  # 2026-01-01T00:00:00.123456789Z
TEXT = "2026-01-01T00:00:00.123456Z"


@pytest.mark.parametrize(
    ("data_type", "value", "expected"),
    [
        (pa.timestamp("ns"), NS, TEXT),
        (pa.timestamp("ns", "UTC"), NS, TEXT),
        (pa.timestamp("ns", "Europe/Berlin"), NS, TEXT),
        (pa.timestamp("us", "+05:30"), NS // 1000, TEXT),
        (pa.timestamp("us"), NS // 1000, TEXT),
        (pa.timestamp("ms"), NS // 1_000_000, "2026-01-01T00:00:00.123000Z"),
        (pa.timestamp("s"), NS // 1_000_000_000, "2026-01-01T00:00:00Z"),
        (pa.timestamp("ns"), -1000, "1969-12-31T23:59:59.999999Z"),
        (pa.struct([("at", pa.timestamp("ns"))]), {"at": NS}, {"at": TEXT}),
        (pa.list_(pa.timestamp("ns")), [NS, None], [TEXT, None]),
        (pa.large_list(pa.timestamp("ns")), [NS], [TEXT]),
        (pa.list_(pa.timestamp("ns"), 2), [NS, NS], [TEXT, TEXT]),
        (pa.map_(pa.string(), pa.timestamp("ns")), [("k", NS)], {"k": TEXT}),
        (
            pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.timestamp("ns", "UTC"))))])),
            [{"m": [("k", [NS])]}],
            [{"m": {"k": [TEXT]}}],
        ),
        (pa.map_(pa.string(), pa.int64()), [("k", 1), ("z", 2)], {"k": 1, "z": 2}),
        (pa.map_(pa.int32(), pa.string()), [(1, "a")], {"1": "a"}),
        (pa.map_(pa.bool_(), pa.int8()), [(True, 1)], {"true": 1}),
        (
            pa.map_(pa.float64(), pa.int8()),
            [(1.5, 1), (float("nan"), 2), (float("-inf"), 3)],
            {"1.5": 1, "NaN": 2, "-Infinity": 3},
        ),
        (pa.map_(pa.decimal128(9, 2), pa.int8()), [(Decimal("1.10"), 1)], {"1.10": 1}),
        (pa.map_(pa.binary(), pa.int8()), [(b"\x00\xff", 1)], {"AP8=": 1}),
        (pa.map_(pa.time64("us"), pa.int8()), [(81_940, 1)], {"00:00:00.081940": 1}),
        (pa.list_(pa.map_(pa.timestamp("us"), pa.int8())), [[(NS // 1000, 1)]], [{TEXT: 1}]),
        (pa.time64("ns"), 81_940_000, "00:00:00.081940"),
        (pa.time64("us"), 81_940, "00:00:00.081940"),
        (pa.time32("ms"), 1, "00:00:00.001000"),
        (pa.date32(), date(9999, 12, 31), "9999-12-31"),
        (pa.decimal128(20, 10), Decimal("0E-10"), "0.0000000000"),
        (pa.decimal128(20, 10), Decimal("1.200E-7"), "0.0000001200"),
        (pa.decimal128(38, 0), Decimal(10**37), "1" + "0" * 37),
        (pa.list_(pa.decimal128(20, 10)), [Decimal("-1E-10")], ["-0.0000000001"]),
        (pa.decimal256(76, 38), Decimal("1E-38"), "0." + "0" * 37 + "1"),
        (pa.float32(), 0.1, 0.10000000149011612),
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.binary(), b"\x00\xff", "AP8="),
        (pa.list_(pa.binary(2)), [b"\x00\xff"], ["AP8="]),
        (pa.dictionary(pa.int8(), pa.string()), "ä", "ä"),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float32(), float("-inf"), "-Infinity"),
        (pa.list_(pa.float64()), [0.5, float("inf"), None], [0.5, "Infinity", None]),
    ],
)
def test_values_of_parquet_columns(data_type: pa.DataType, value: Any, expected: Any) -> None:
    if pa.types.is_dictionary(data_type):
        assert column([value], data_type) == [expected]
        return
    assert column([value, None], data_type) == [expected, None]


def with_enums(table: pa.Table) -> bytes:
    """A Parquet file that declares what Arrow writes as `STRING` as `ENUM`, as parquet-avro does for enums."""
    content = parquet_of(table, store_schema=False, use_dictionary=False)
    string, enum = bytes.fromhex("25004c1c0000"), bytes.fromhex("25084c4c0000")  # converted and logical type
    assert string in content
    return content.replace(string, enum)


def test_enums_of_parquet_are_text_at_every_depth_and_bytes_beside_them_are_not() -> None:
    enum = pa.string()
    nested_type = pa.struct([("l", pa.list_(enum)), ("b", pa.binary()), ("m", pa.map_(enum, enum))])
    nested = {"l": ["A", None], "b": b"B", "m": [("k", "V")]}
    table = pa.table(
        {
            "at": pa.array([NS, None], pa.timestamp("ns")),
            "b": pa.array([b"B", None]),
            "v": pa.array(["Zoë", None], enum),
            "n": pa.array([nested, None], nested_type),
            "z": pa.array([b"B", None]),
        }
    )
    assert [orjson.loads(row.data or b"") for row in rows("parquet", with_enums(table))] == [
        {
            "at": TEXT,
            "b": "Qg==",
            "v": "Zoë",
            "n": {"l": ["A", None], "b": "Qg==", "m": {"k": "V"}},
            "z": "Qg==",
        },
        {"at": None, "b": None, "v": None, "n": None, "z": None},
    ]


def test_an_enum_that_is_not_utf_8_refuses_its_row_alone() -> None:
    content = with_enums(pa.table({"v": ["SHIPPED", "good"]})).replace(b"SHIPPED", b"SHIPPE\xff")
    assert [row.reason for row in rows("parquet", content)] == ["not-json", ""]


def test_times_of_96_bits_keep_the_years_that_nanoseconds_do_not_have() -> None:
    values = [datetime(1, 1, 1), datetime(1500, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 1)]  # noqa: DTZ001
    nested_type = pa.list_(pa.timestamp("us"))
    table = pa.table(
        {"v": pa.array(values, pa.timestamp("us")), "l": pa.array([[value] for value in values], nested_type)}
    )
    object_rows = rows("parquet", parquet_of(table, use_deprecated_int96_timestamps=True))
    time_texts = ["0001-01-01T00:00:00Z", "1500-01-01T00:00:00Z", "9999-12-31T23:59:59.000001Z"]
    assert [orjson.loads(row.data or b"") for row in object_rows] == [
        {"v": text, "l": [text]} for text in time_texts
    ]


def test_a_duration_is_in_iso_8601() -> None:
    values = [timedelta(days=1, microseconds=1), timedelta(seconds=-1)]
    assert column(values, pa.duration("us")) == ["PT86400.000001S", "PT-1.000000S"]


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        (pa.schema([("id", pa.int64()), ("x", pa.string()), ("x", pa.string())]), "x"),
        (pa.schema([("s", pa.struct([("y", pa.int64()), ("y", pa.int64())]))]), "s.y"),
        (pa.schema([("l", pa.list_(pa.struct([("y", pa.int64()), ("y", pa.int64())])))]), "l.y"),
    ],
)
def test_a_column_that_is_there_twice_is_named_and_the_object_is_refused(
    schema: pa.Schema, name: str
) -> None:
    arrays = [pa.nulls(3, field.type) for field in schema]
    (row,) = rows("parquet", parquet_of(pa.Table.from_arrays(arrays, schema=schema)))
    assert (row.number, row.reason) == (1, "duplicate-column")
    assert row.detail == f"x: the schema names the column {name!r} twice"


@pytest.mark.parametrize(
    ("bad_value", "data_type"),
    [
        (253_402_300_800_000, pa.timestamp("ms")),
        (-(2**62), pa.timestamp("us", "UTC")),
        (2**40, pa.timestamp("s")),
        (2**30, pa.date32()),
        ([("k", 1), ("k", 2)], pa.map_(pa.string(), pa.int64())),
        ([(float("nan"), 1), (float("nan"), 2)], pa.map_(pa.float64(), pa.int64())),
    ],
)
def test_a_value_that_cannot_be_represented_refuses_its_row_alone(
    bad_value: Any, data_type: pa.DataType
) -> None:
    good_value: Any = [] if pa.types.is_map(data_type) else 0
    table = pa.table({"n": [0, 1, 2], "v": pa.array([good_value, bad_value, good_value], data_type)})
    object_rows = rows("parquet", parquet_of(table, store_schema=True))
    assert [(row.number, row.reason) for row in object_rows] == [(1, ""), (2, "not-json"), (3, "")]
    assert "row 2" in object_rows[1].detail


def test_text_that_is_not_utf_8_refuses_its_row_alone() -> None:
    offsets, data = pa.array([0, 1, 3, 4], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff\xfeb")
    text = pa.StringArray.from_buffers(3, offsets, data)
    object_rows = rows("parquet", parquet_of(pa.table({"v": text})))
    assert [row.reason for row in object_rows] == ["", "not-json", ""]
    assert "'v'" in object_rows[1].detail


@pytest.mark.slow
def test_large_rows_are_read_a_few_at_a_time_and_one_that_is_too_large_is_refused_alone() -> None:
    values = ["x" * 90_000] * 300 + ["x" * 200_000] + ["y"]
    object_rows = rows("parquet", parquet_of(pa.table({"v": values}), compression="zstd"))
    assert [row.number for row in object_rows] == [*range(1, 303)]
    assert [(row.number, row.data) for row in object_rows if row.reason] == [(301, None)]


def avro_of(schema: Any, records: list[Any], **options: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, schema, records, **options)
    return sink.getvalue()


def test_a_field_of_avro_that_is_there_twice_is_named_and_the_object_is_refused() -> None:
    field = {"name": "x", "type": "int"}
    for schema in (
        {"type": "record", "name": "R", "fields": [field, {"name": "y", "type": "int"}, field]},
        {
            "type": "record",
            "name": "O",
            "fields": [{"name": "r", "type": {"type": "record", "name": "R", "fields": [field, field]}}],
        },
    ):
        (row,) = rows("avro", avro_of(schema, []))
        assert (row.reason, row.detail) == (
            "duplicate-column",
            "x: the schema names the column 'x' of R twice",
        )


def record_of(data_type: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "v", "type": data_type}]}


MOMENT = datetime(2026, 1, 1, 0, 0, 0, 123456, UTC)


@pytest.mark.parametrize(
    ("data_type", "value", "expected"),
    [
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 10},
            Decimal("0E-10"),
            "0.0000000000",
        ),
        (
            {
                "type": "array",
                "items": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 10},
            },
            [Decimal("1.200E-7")],
            ["0.0000001200"],
        ),
        ({"type": "long", "logicalType": "timestamp-micros"}, MOMENT, TEXT),
        (
            {"type": "map", "values": {"type": "long", "logicalType": "timestamp-micros"}},
            {"k": MOMENT},
            {"k": TEXT},
        ),
        ({"type": "int", "logicalType": "date"}, date(2026, 1, 1), "2026-01-01"),
        ({"type": "long", "logicalType": "time-micros"}, time(0, 0, 0, 81_940), "00:00:00.081940"),
        ({"type": "string", "logicalType": "uuid"}, UUID(int=1), str(UUID(int=1))),
        ({"type": "string", "logicalType": "uuid"}, "order-17", "order-17"),
        ("bytes", b"\x00\xff", "AP8="),
        ("long", 2**63 - 1, 2**63 - 1),
        (["null", "string"], None, None),
    ],
)
def test_values_of_avro_fields(data_type: Any, value: Any, expected: Any) -> None:
    (row,) = rows("avro", avro_of(record_of(data_type), [{"v": value}]))
    assert (row.reason, orjson.loads(row.data or b"")) == ("", {"v": expected})


@pytest.mark.parametrize(
    ("logical", "plain_type", "bad_value", "good_value"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, "long", 2**62, 0),
        ({"type": "long", "logicalType": "timestamp-micros"}, "long", -(2**63), 0),
        ({"type": "int", "logicalType": "date"}, "int", 2**31 - 1, 0),
        ("string", "bytes", b"\xff", b"a"),
    ],
)
def test_an_avro_value_that_cannot_be_represented_refuses_its_row_alone(
    logical: Any, plain_type: str, bad_value: Any, good_value: Any
) -> None:
    content = avro_of(record_of(plain_type), [{"v": good_value}, {"v": bad_value}, {"v": good_value}])
    old_type, new_type = (
        orjson.dumps(record_of(field_type)["fields"][0]["type"]) for field_type in (plain_type, logical)
    )
    content = _with_schema(content, orjson.dumps(record_of(plain_type)), orjson.dumps(record_of(logical)))
    assert old_type != new_type
    object_rows = rows("avro", content)
    assert [(row.number, row.reason) for row in object_rows] == [(1, ""), (2, "not-json"), (3, "")]
    assert "NoValue" not in object_rows[1].detail


def _with_schema(content: bytes, old: bytes, new: bytes) -> bytes:
    """The file with another schema in its header."""
    schema = fastavro.reader(io.BytesIO(content)).metadata["avro.schema"].encode()
    assert orjson.loads(schema)["fields"] == orjson.loads(old)["fields"]

    def text(value: bytes) -> bytes:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, "bytes", value)
        return sink.getvalue()

    return content.replace(text(schema), text(new), 1)


LINKED: dict[str, Any] = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}


def linked(depth: int) -> bytes:
    """The bytes of a node with `depth` others within."""
    return b"\x02\x02" * depth + b"\x02\x00"


def linked_file(*depths: int, records_a_block: int = 1) -> bytes:
    """An Avro file with nodes nested to these depths; each block has some."""
    content = avro_of(LINKED, [])
    marker = content[-16:]
    for index in range(0, len(depths), records_a_block):
        block = depths[index : index + records_a_block]
        data = b"".join(map(linked, block))
        content += _long(len(block)) + _long(len(data)) + data + marker
    return content


def _long(value: int) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, "long", value)
    return sink.getvalue()


def test_a_recursive_schema_is_read_and_what_is_nested_too_deeply_is_refused_alone() -> None:
    object_rows = rows("avro", linked_file(1, 5_000_000, 63, 64, 2))
    assert [(row.number, row.reason) for row in object_rows] == [
        (1, ""),
        (2, "unreadable-object"),
        (3, ""),
        (4, "not-json"),
        (5, ""),
    ]
    assert object_rows[1].detail.startswith("x: row 2: ")
    assert "deeper than 64 levels" in object_rows[3].detail


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, zstandard.compress])
def test_a_recursive_schema_in_a_compressed_file_is_read_to_its_end(
    compress: Callable[[bytes], bytes],
) -> None:
    schema = LINKED | {"fields": [*LINKED["fields"], {"name": "text", "type": "string"}]}
    records = [{"n": number, "next": None, "text": "x" * 90_000} for number in range(30)]
    object_rows = rows("avro", compress(avro_of(schema, records)))
    assert [(row.number, row.reason) for row in object_rows] == [(number, "") for number in range(1, 31)]


def test_the_rest_of_a_damaged_block_is_one_row_and_the_next_block_is_read() -> None:
    object_rows = rows("avro", linked_file(1, 1_000_000, 2, 3, 4, 5, records_a_block=3))
    assert [(row.number, row.reason) for row in object_rows] == [
        (1, ""),
        (2, "unreadable-object"),
        (4, ""),
        (5, ""),
        (6, ""),
    ]
    assert object_rows[1].detail.startswith("x: rows 2 to 3: ")


@pytest.mark.parametrize("skip", [0, 1, 3, 4, 6])
def test_blocks_with_rows_that_were_read_are_left_out(skip: int) -> None:
    rows_left = rows("avro", linked_file(1, 2, 3, 4, 5, 6, records_a_block=3), skip=skip)
    assert [row.number for row in rows_left] == [*range(skip + 1, 7)]


def test_a_block_that_says_that_it_has_endless_rows_is_refused() -> None:
    empty = {"type": "record", "name": "R", "fields": [{"name": "v", "type": "null"}]}
    content = avro_of(empty, [])
    content += _long(2**50) + _long(0) + content[-16:]
    (row,) = rows("avro", content)
    assert (row.number, row.reason) == (1, "unreadable-object")


def test_a_block_that_says_that_it_has_fewer_rows_than_none_ends_the_object() -> None:
    content = avro_of(
        {"type": "record", "name": "R", "fields": [{"name": "v", "type": "int"}]}, [{"v": 1}] * 3
    )
    head, block, sync = content[:-21], content[-21:-16], content[-16:]
    assert block == _long(3) + _long(3) + b"\x02\x02\x02"
    content = head + block + sync + _long(-2) + _long(0) + sync + block + sync
    assert [(row.number, row.reason) for row in rows("avro", content)] == [
        (1, ""),
        (2, ""),
        (3, ""),
        (4, "unreadable-object"),
    ]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array", "items": "null"}, "unusable-schema"),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "v", "type": {"type": "array", "items": "null"}}],
            },
            "unusable-schema",
        ),
        ("string", "not-a-record"),
    ],
)
def test_schemas_that_are_no_rows_or_no_end_are_refused(schema: Any, reason: str) -> None:
    value: Any = {"v": []} if isinstance(schema, dict) and schema["type"] == "record" else []
    if isinstance(schema, str):
        value = "a"
    assert [row.reason for row in rows("avro", avro_of(schema, [value]))] == [reason]


@given(st.binary(max_size=400), st.integers(0, 400), st.sampled_from(["parquet", "avro"]))
def test_a_damaged_object_is_read_to_its_damage(noise: bytes, position: int, file_format: str) -> None:
    content = (
        parquet_of(pa.table({"v": [*range(20)]}), row_group_size=5)
        if file_format == "parquet"
        else avro_of(record_of("long"), [{"v": number} for number in range(20)], sync_interval=10)
    )
    position = min(position, len(content))
    object_rows = rows(file_format, content[:position] + noise + content[position + len(noise) :])
    numbers = [row.number for row in object_rows]
    assert numbers == sorted(set(numbers))
    assert len([row for row in object_rows if row.reason == "unreadable-object"]) <= 20
