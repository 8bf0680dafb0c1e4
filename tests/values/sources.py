"""Writes a table in the format of a source, and reads it with hifi's reader: the data of each event."""

import csv
import io
import json
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import fastavro
import pyarrow as pa
from aiokafka import ConsumerRecord
from pyarrow import parquet
from tests.values.tables import Table, number, text_of

from hifi.avro.schema import AvroSchema, read_schema
from hifi.record.headers import REFUSED
from hifi_kafka.avro.decode import decode
from hifi_kafka.declaration import KafkaSource
from hifi_kafka.source.records import RecordReader
from hifi_objects.source.rows.batches import RowBatches
from hifi_objects.source.rows.binary import tolerate_bad_values
from hifi_objects.source.rows.row_format import RowFormat

tolerate_bad_values()
LIMIT = 1_000_000
AVRO: dict[str, Any] = {
    "long": "long", "double": "double", "boolean": "boolean", "text": "string", "bytes": "bytes",
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"}, "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"}, "list": {"type": "array", "items": ["null", "long"]},
}  # fmt: skip
ARROW = {
    "long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_(), "text": pa.string(), "bytes": pa.binary(),
    "decimal": pa.decimal128(38, 18), "timestamp": pa.timestamp("us", "UTC"), "date": pa.date32(),
    "time": pa.time64("us"), "list": pa.list_(pa.int64()),
}  # fmt: skip


def avro_schema(table: Table) -> AvroSchema:
    """All columns may be null."""
    fields = [{"name": name, "type": ["null", AVRO[kind]]} for name, kind in table.columns.items()]
    return read_schema(json.dumps({"type": "record", "name": "R", "fields": fields}))


def exact(table: Table) -> list[dict[str, Any]]:
    """Rows whose decimals have the scale of their column."""
    scale, digits = Decimal(1).scaleb(-18), Context(prec=60)

    def of_column(value: Any) -> Any:
        return value.quantize(scale, context=digits) if isinstance(value, Decimal) else value

    return [{name: of_column(value) for name, value in row.items()} for row in table.rows]


def json_lines(table: Table) -> list[bytes]:
    """As a sender writes it that keeps every digit."""
    lines = []
    for row in table.rows:
        members = []
        for name, value in row.items():
            kind = table.columns[name]
            text = text_of(value, kind)
            members.append(f'"{name}": {text if number(value, kind) else json.dumps(text)}')
        lines.append(f"{{{', '.join(members)}}}".encode())
    return lines


def of_object(file_format: str, content: bytes) -> list[bytes]:
    """The data of the rows of an object, none of which may be refused."""
    row_batches, row_data = (
        RowBatches(RowFormat(file_format, ",", "utf-8", LIMIT), io.BytesIO(content), "x", 0),
        [],
    )
    while not row_batches.complete:
        for row in row_batches.next(100):
            assert not row.reason, row.detail
            row_data.append(row.data or b"")
    return row_data


def from_topic(table: Table) -> list[bytes]:
    """Records with JSON."""
    source = KafkaSource.model_validate({"kind": "kafka", "bootstrap": "k:1", "topic": "t"})
    read_record, data = RecordReader(source, "c", LIMIT), []
    for line in json_lines(table):
        event = read_record(ConsumerRecord("t", 0, 0, 0, 0, None, line, None, 0, len(line), ()))
        assert REFUSED not in dict(event.headers)
        data.append(event.data or b"")
    return data


def from_ndjson(table: Table) -> list[bytes]:
    """An object with lines."""
    return of_object("ndjson", b"\n".join(json_lines(table)))


def from_csv(table: Table) -> list[bytes]:
    """An object with the text of each value, which is not null."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(table.columns)
    for row in table.rows:
        writer.writerow([text_of(row[name], kind) for name, kind in table.columns.items()])
    return of_object("csv", stream.getvalue().encode())


def from_avro_topic(table: Table) -> list[bytes]:
    """Records with Avro."""
    schema, data = avro_schema(table), []
    for row in exact(table):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema.parsed, row)
        data.append(decode(schema, stream.getvalue()))
    return data


def from_avro(table: Table) -> list[bytes]:
    """An object container file."""
    stream = io.BytesIO()
    fastavro.writer(stream, avro_schema(table).parsed, exact(table))
    return of_object("avro", stream.getvalue())


def from_parquet(table: Table) -> list[bytes]:
    """A Parquet file."""
    rows = exact(table)
    columns = {
        name: pa.array([row[name] for row in rows], ARROW[kind]) for name, kind in table.columns.items()
    }
    sink = io.BytesIO()
    parquet.write_table(pa.table(columns), sink)
    return of_object("parquet", sink.getvalue())


SOURCES: dict[str, Callable[[Table], list[bytes]]] = {
    "kafka": from_topic, "ndjson": from_ndjson, "csv": from_csv, "kafka-avro": from_avro_topic, "avro": from_avro,
    "parquet": from_parquet,
}  # fmt: skip
