"""Parquet files of rows. Needs pyarrow."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from hifi.runtime import exact_json
from hifi_objects.declaration import ObjectColumn
from hifi_objects.destination.rows import ACCEPTED, ATTRIBUTES, DATA, LOG, OFFSET, PARTITION, Row

_TYPES: Final = {
    "string": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "json": pa.string(),
}
_CONVERTED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "long": int,
    "double": float,  # also of a text such as `NaN`
    "json": lambda value: exact_json.dumps(value).decode(),
}
"""From values as they are in the data."""


class Parquet:
    """Parquet with the columns of the destination."""

    def __init__(self, columns: Mapping[str, ObjectColumn]) -> None:
        """Make the schema.

        Args:
            columns: for values of the data; none: one for all of it.
        """
        self._columns = columns or DATA
        self._schema = pa.schema(
            [
                pa.field(LOG, pa.string(), nullable=False),
                pa.field(PARTITION, pa.int32(), nullable=False),
                pa.field(OFFSET, pa.int64(), nullable=False),
                pa.field(ACCEPTED, pa.timestamp("us", "UTC"), nullable=False),
                *(pa.field(f"ce_{name}", pa.string()) for name in ATTRIBUTES),
                *(pa.field(name, _TYPES[column.type]) for name, column in self._columns.items()),
            ]
        )
        self._names: list[str] = self._schema.names

    def encode(self, rows: Sequence[Row]) -> bytes:
        """The file of some rows."""
        columns = [self._column(name, [row[name] for row in rows]) for name in self._names]
        table = pa.Table.from_arrays(columns, schema=self._schema)
        sink = pa.BufferOutputStream()
        parquet.write_table(table, sink, compression="zstd")
        content: bytes = sink.getvalue().to_pybytes()
        return content

    def offsets(self, content: bytes) -> list[int]:
        """The offsets in the column of a file. Raises `ValueError` (`pyarrow.ArrowInvalid`)."""
        table = parquet.read_table(io.BytesIO(content), columns=[OFFSET])
        offsets: list[int] = table.column(OFFSET).to_pylist()
        return offsets

    def _column(self, name: str, values: list[Any]) -> pa.Array:
        declared = self._columns.get(name)
        if declared is not None and (convert := _CONVERTED.get(declared.type)):
            values = [None if value is None else convert(value) for value in values]
        return pa.array(values, self._schema.field(name).type)
