"""Rows of Parquet files and of Avro object container files."""

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import fastavro
import pyarrow as pa
from pyarrow import parquet

from hifi_objects.source.rows.compression import decompressed
from hifi_objects.source.rows.row import ObjectRow, UnreadableObject, row_of

_ROWS: Final = 250


def parquet_rows(file: BinaryIO, skip: int) -> Iterator[ObjectRow]:
    """The rows of a Parquet file. Times of nanoseconds are cut to microseconds.

    Args:
        file: with all of the content.
        skip: number of rows at the beginning to leave out; row groups with no others are not read.
    """
    parquet_file = parquet.ParquetFile(file, pre_buffer=False)
    groups, first = list(range(parquet_file.num_row_groups)), 0
    while groups and first + parquet_file.metadata.row_group(groups[0]).num_rows <= skip:
        first += parquet_file.metadata.row_group(groups.pop(0)).num_rows
    if not groups:
        return
    for batch in parquet_file.iter_batches(_ROWS, row_groups=groups, use_threads=False):
        for number, fields in enumerate(_in_microseconds(batch).to_pylist(), first + 1):
            if number > skip:
                yield row_of(number, fields)
        first += batch.num_rows


def avro_rows(file: BinaryIO) -> Iterator[ObjectRow]:
    """The records of an Avro object container file.

    Raises:
        UnreadableObject: a record is no map of values.
    """
    records: Iterator[Any] = fastavro.reader(decompressed(file))
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict):
            raise UnreadableObject("not-a-record", "the schema of the object is not a record")
        yield row_of(number, record)


def _in_microseconds(batch: Any) -> Any:
    for index, field in enumerate(batch.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            unit = pa.timestamp("us", field.type.tz)
            batch = batch.set_column(index, field.with_type(unit), batch.column(index).cast(unit, safe=False))
    return batch
