"""Each cell of the table of types (docs/values.md) is what the real reader and writer do.

Those of PostgreSQL, Spark and Iceberg are tested beside their services: test_rows.py, test_json_fields.py and
test_table_rows.py.
"""

import io
import json
import math
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from aiokafka import ConsumerRecord
from pyarrow import parquet

from hifi.avro.schema import read_schema
from hifi.delivery.kind import OutboundEvent
from hifi.record.cloudevents.decode import binary
from hifi.record.cloudevents.event import DecodeLimits, InvalidEvent
from hifi.record.headers import REFUSED
from hifi.runtime import exact_json
from hifi.runtime.errors import Rejected
from hifi_cli.reference import value_types
from hifi_cli.reference.value_types import FORMATS, NEITHER, ValueType
from hifi_kafka.avro.decode import decode
from hifi_kafka.avro.encode import Encoder
from hifi_kafka.declaration import KafkaSource
from hifi_kafka.source.records import RecordReader
from hifi_objects.declaration import ObjectColumn
from hifi_objects.destination.formats import Ndjson
from hifi_objects.destination.parquet import Parquet
from hifi_objects.destination.rows import row
from hifi_objects.source.rows.batches import RowBatches
from hifi_objects.source.rows.row_format import RowFormat

LIMIT = 100_000


def same(first: Any, second: Any) -> bool:
    """Whether two values are equal and of one type; NaN is NaN."""
    if isinstance(first, float) and isinstance(second, float) and math.isnan(first):
        return math.isnan(second)
    return type(first) is type(second) and bool(first == second)


def examples(rows: tuple[ValueType, ...]) -> Any:
    return pytest.mark.parametrize("row_", rows, ids=[f"{row.types}:{row.data}" for row in rows])


def rows_of(file_format: str, content: bytes) -> list[bytes | None]:
    """The data of the rows of an object; None: refused."""
    row_batches = RowBatches(RowFormat(file_format, ",", "utf-8", LIMIT), io.BytesIO(content), "x", 0)
    row_data: list[bytes | None] = []
    while not row_batches.complete:
        row_data += [None if object_row.reason else object_row.data for object_row in row_batches.next(100)]
    return row_data


def event(data: bytes) -> OutboundEvent:
    return OutboundEvent(data, "application/json", {}, b"k", "0a" * 16, 0, 1, 0)


def test_no_cell_is_silent_and_each_has_an_example() -> None:
    for name, rows in FORMATS.items():
        for declared in rows:
            assert declared.read, (name, declared.types)
            assert declared.read == NEITHER or declared.reads, (name, declared.types)
            if name != "PostgreSQL":  # `hifi_postgres.value_table` has it
                assert declared.written, (name, declared.types)
                exempt = name.startswith("Spark") or declared.written == NEITHER
                assert exempt or declared.writes, (name, declared.types)
            for outcome, pairs in ((declared.read, declared.reads), (declared.written, declared.writes)):
                if outcome == "refused":
                    assert all(expected is None for _, expected in pairs), (name, declared.types)
    assert value_types.markdown().count("\n") > sum(map(len, FORMATS.values()))


@examples(value_types.JSON)
def test_json(row_: ValueType) -> None:
    source = KafkaSource.model_validate({"kind": "kafka", "bootstrap": "k:1", "topic": "t"})
    read_record = RecordReader(source, "c", LIMIT)
    for text, expected in row_.reads:
        data = f'{{"v":{text}}}'.encode()
        event_of_record = read_record(record(data))
        topic_data = None if REFUSED in dict(event_of_record.headers) else event_of_record.data
        assert topic_data == (None if expected is None else data)
        assert rows_of("ndjson", data + b"\n") == [topic_data]
        assert of_request(data) == topic_data
    for text, expected in row_.writes:
        try:
            object_row = row(event(f'{{"v":{text}}}'.encode()), {"v": ObjectColumn(path="v", type="json")})
        except Rejected:
            assert expected is None
            continue
        line = Ndjson(compressed=False).encode([object_row])
        assert exact_json.loads(line)["v"] == exact_json.loads(expected)
        assert line.endswith(f'"v":{expected}}}\n'.encode()) or "\\u" in expected


def of_request(data: bytes) -> bytes | None:
    """The data of an event over HTTP; None: refused."""
    names = {b"specversion": b"1.0", b"id": b"1", b"source": b"/s", b"type": b"t"}
    headers = [
        (b"content-type", b"application/json"),
        *((b"ce-" + name, text) for name, text in names.items()),
    ]
    try:
        return binary(headers, data, DecodeLimits(LIMIT, 1000, 64)).data
    except InvalidEvent:
        return None


def record(value: bytes) -> Any:
    return ConsumerRecord("t", 0, 0, 0, 0, None, value, None, 0, len(value), ())


@examples(value_types.CSV)
def test_csv(row_: ValueType) -> None:
    for cell, expected in row_.reads:
        content = cell if isinstance(cell, bytes) else cell.encode()
        (data,) = rows_of("csv", b"v,w\n" + content + b",x\n")
        assert data == (None if expected is None else f'{{"v":{expected},"w":"x"}}'.encode())


@examples(value_types.AVRO)
def test_avro(row_: ValueType) -> None:
    kinds = row_.declared if row_.types.startswith("`null`") else None
    for number, (value, text) in enumerate(row_.reads):
        schema = avro(row_.declared if kinds is None else kinds[number])
        stream = io.BytesIO()
        if text is None:
            fastavro.schemaless_writer(stream, fastavro.parse_schema(plain(row_.declared)), {"v": value})
            with pytest.raises(Rejected):
                decode(schema, stream.getvalue())
            continue
        fastavro.schemaless_writer(stream, schema.parsed, {"v": value})
        assert decode(schema, stream.getvalue()) == f'{{"v":{text}}}'.encode()
    for number, (text, value) in enumerate(row_.writes):
        schema = avro(row_.declared if kinds is None else kinds[number])
        data: Any = exact_json.loads(f'{{"v":{text}}}')
        if value is None and text != "null":
            with pytest.raises(Rejected, match="/v does not fit"):
                Encoder(schema)(data)
            continue
        encoded_value = Encoder(schema)(data)
        decoded_value: Any = fastavro.schemaless_reader(io.BytesIO(encoded_value), schema.parsed, None)
        assert same(decoded_value["v"], value)


def avro(declared: Any) -> Any:
    return read_schema(
        json.dumps({"type": "record", "name": "R", "fields": [{"name": "v", "type": declared}]})
    )


def plain(declared: Any) -> Any:
    """The schema of a value without its logical type."""
    return {"type": "record", "name": "R", "fields": [{"name": "v", "type": declared["type"]}]}


ARROW = {
    "uint64": pa.uint64(), "float64": pa.float64(), "bool": pa.bool_(), "string": pa.string(), "binary": pa.binary(),
    "decimal128(20, 10)": pa.decimal128(20, 10), "date32": pa.date32(), "timestamp[us]": pa.timestamp("us"),
    "timestamp[ns]": pa.timestamp("ns"), "timestamp[s]": pa.timestamp("s"), "duration[us]": pa.duration("us"),
    "list": pa.list_(pa.int64()),
}  # fmt: skip
WRITTEN_AS = {"uint64": "long", "float64": "double", "bool": "boolean", "list": "json"}


@examples(value_types.PARQUET)
def test_parquet(row_: ValueType) -> None:
    for value, text in row_.reads:
        sink = io.BytesIO()
        parquet.write_table(pa.table({"v": pa.array([value], ARROW[row_.declared])}), sink)
        assert rows_of("parquet", sink.getvalue()) == [None if text is None else f'{{"v":{text}}}'.encode()]
    columns = {"v": ObjectColumn(path="v", type=WRITTEN_AS.get(row_.declared, "string"))}
    for text, value in row_.writes:
        outbound = event(f'{{"v":{text}}}'.encode())
        if value is None:
            with pytest.raises(Rejected, match="the column v"):
                row(outbound, columns)
            continue
        content = Parquet(columns).encode([row(outbound, columns)])
        (stored_value,) = parquet.read_table(io.BytesIO(content)).column("v").to_pylist()
        assert same(stored_value, value)
