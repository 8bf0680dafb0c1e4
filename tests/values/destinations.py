"""Writes events with hifi's writer of a destination, and reads what stands there with another program's reader."""

import io
from collections.abc import Callable
from typing import Any

import fastavro
from pyarrow import parquet
from tests.values.sources import avro_schema
from tests.values.tables import Table, Value, of_json

from hifi.delivery.kind import OutboundEvent
from hifi.runtime import exact_json
from hifi_kafka.avro.encode import Encoder
from hifi_kafka.declaration import KafkaDestinationSettings
from hifi_kafka.destination.records import destination_record
from hifi_objects.declaration import ObjectColumn
from hifi_objects.destination.formats import Ndjson
from hifi_objects.destination.parquet import Parquet
from hifi_objects.destination.rows import row

Rows = list[dict[str, Value]]
PARQUET = {"long": "long", "double": "double", "boolean": "boolean", "list": "json", "decimal": "json"}


def outbound(offset: int, data: bytes) -> OutboundEvent:
    """An event with this data."""
    return OutboundEvent(data, "application/json", {"id": "i"}, b"k", "0a" * 16, 0, offset, 1)


def columns_of(table: Table) -> dict[str, ObjectColumn]:
    """As a pipe declares them for objects."""
    return {
        name: ObjectColumn.model_validate({"path": name, "type": PARQUET.get(kind, "string")})
        for name, kind in table.columns.items()
    }


def to_topic(table: Table, data: list[bytes]) -> Rows:
    """Records with JSON in structured mode."""
    settings = KafkaDestinationSettings.model_validate(
        {"bootstrap": "k:1", "topic": "t", "format": "cloudevents-structured"}
    )
    values = [destination_record(outbound(index, text), settings).value for index, text in enumerate(data)]
    return [_of_object(table, exact_json.loads(value)["data"]) for value in values]


def to_avro_topic(table: Table, data: list[bytes]) -> Rows:
    """Records with Avro."""
    settings = KafkaDestinationSettings.model_validate(
        {"bootstrap": "k:1", "topic": "t", "format": "cloudevents-binary"}
    ).model_copy(update={"format": "avro"})
    schema = avro_schema(table)
    encode = Encoder(schema)
    values = [
        destination_record(outbound(index, text), settings, encode).value for index, text in enumerate(data)
    ]
    return [fastavro.schemaless_reader(io.BytesIO(value), schema.parsed, None) for value in values]  # type: ignore[misc]


def to_ndjson(table: Table, data: list[bytes]) -> Rows:
    """Lines of an object, with a column for each value."""
    columns = {name: ObjectColumn(path=name, type="json") for name in table.columns}
    rows = [row(outbound(index, text), columns) for index, text in enumerate(data)]
    lines = Ndjson(compressed=False).encode(rows).splitlines()
    return [_of_object(table, exact_json.loads(line)) for line in lines]


def to_parquet(table: Table, data: list[bytes]) -> Rows:
    """A Parquet file; decimals and lists are JSON in it, bytes and times text."""
    columns = columns_of(table)
    content = Parquet(columns).encode(
        [row(outbound(index, text), columns) for index, text in enumerate(data)]
    )
    stored_rows = parquet.read_table(io.BytesIO(content), columns=list(columns)).to_pylist()
    return [
        {name: _of_column(value, table.columns[name]) for name, value in stored_row.items()}
        for stored_row in stored_rows
    ]


def _of_object(table: Table, data: dict[str, Any]) -> dict[str, Value]:
    return {name: of_json(data[name], kind) for name, kind in table.columns.items()}


def _of_column(value: Any, kind: str) -> Value:
    if kind in {"list", "decimal"} and value is not None:
        value = exact_json.loads(value)
    return of_json(value, kind)


DESTINATIONS: dict[str, Callable[[Table, list[bytes]], Rows]] = {
    "kafka": to_topic, "kafka-avro": to_avro_topic, "ndjson": to_ndjson, "parquet": to_parquet,
}  # fmt: skip
