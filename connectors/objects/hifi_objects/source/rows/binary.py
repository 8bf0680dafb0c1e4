"""Rows of Parquet files and of Avro object container files."""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

import fastavro
import pyarrow as pa
from fastavro import _read_py
from pyarrow import parquet

import hifi.avro.logical_types  # noqa: F401 - fastavro reads them exactly
from hifi.avro.schema import DuplicateField, InvalidSchema, read_schema
from hifi_objects.source.rows.compression import decompressed
from hifi_objects.source.rows.parquet_types import duplicate_column, readable_types
from hifi_objects.source.rows.row import NoValue, ObjectRow, UnreadableObject, row_of

_ROWS: Final = 250
_BATCH_BYTES: Final = 4 * 1024 * 1024
_BUFFER_BYTES: Final = 256 * 1024
_SHOWN: Final = 80
_EXPLAINED: Final = 200
"""Most characters of a name, and of what is wrong with a schema."""
_KEEP: Final = "surrogateescape"
"""Text that is not UTF-8 is refused when its row is written as JSON."""
_ENUM: Final = "ENUM"
"""A logical type of Parquet: text."""
_MOST_RECORDS_A_BYTE: Final = 10_000
"""Of a compressed block; a row without bytes could be repeated without end."""


def parquet_rows(file: BinaryIO, skip: int) -> Iterator[ObjectRow]:
    """The rows of a Parquet file. Times of nanoseconds are cut to microseconds; those without a zone are UTC.

    Columns that Parquet declares `ENUM`, which Arrow reads as bytes, are text.

    Args:
        file: with all of the content.
        skip: number of rows at the beginning to leave out; row groups with no others are not read.

    Raises:
        UnreadableObject: a column is there twice.
    """
    parquet_file = parquet.ParquetFile(
        file, pre_buffer=False, buffer_size=_BUFFER_BYTES, coerce_int96_timestamp_unit="us"
    )
    schema = parquet_file.schema_arrow
    if (name := duplicate_column(schema)) is not None:
        raise UnreadableObject("duplicate-column", f"the schema names the column {name[:_SHOWN]!r} twice")
    columns = parquet_file.schema
    enums = [columns.column(leaf).logical_type.type == _ENUM for leaf in range(len(columns))]
    types = readable_types(schema.types, enums)
    metadata, first_number = parquet_file.metadata, 0
    for group in range(parquet_file.num_row_groups):
        row_group = metadata.row_group(group)
        if first_number + row_group.num_rows <= skip:
            first_number += row_group.num_rows
            continue
        row_bytes = row_group.total_byte_size // max(1, row_group.num_rows)
        count = min(_ROWS, max(1, _BATCH_BYTES // max(1, row_bytes)))
        for batch in parquet_file.iter_batches(count, row_groups=[group], use_threads=False):
            yield from _rows_of(_with_types(batch, types), first_number, skip)
            first_number += batch.num_rows


def _with_types(batch: pa.RecordBatch, types: list[pa.DataType]) -> pa.RecordBatch:
    for index, (field, wanted_type) in enumerate(zip(batch.schema, types, strict=True)):
        if field.type != wanted_type:
            values = batch.column(index).cast(wanted_type, safe=False)
            batch = batch.set_column(index, field.with_type(wanted_type), values)
    return batch


def _rows_of(batch: pa.RecordBatch, first: int, skip: int) -> Iterator[ObjectRow]:
    """The rows of a batch; one with a value that Python cannot represent is refused alone."""
    try:
        rows = batch.to_pylist(maps_as_pydicts="strict")
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - such as text that is not UTF-8, a time after the year 9999
        rows = [None] * batch.num_rows
    for index, fields in enumerate(rows):
        number = first + index + 1
        if number <= skip:
            continue
        if fields is not None:
            yield row_of(number, fields)
        else:
            yield _row_of(batch.slice(index, 1), number)


def _row_of(batch: pa.RecordBatch, number: int) -> ObjectRow:
    fields = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            fields[name] = column.to_pylist(maps_as_pydicts="strict")[0]
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            problem = f"a value of the column {name[:_SHOWN]!r} of row {number} cannot be read"
            return ObjectRow(number, None, "not-json", f"{problem} ({type(error).__name__})")
    return row_of(number, fields)


def avro_rows(file: BinaryIO, skip: int) -> Iterator[ObjectRow]:
    """The records of an Avro object container file. Those of a block behind one that cannot be decoded are left out.

    Args:
        file: at its beginning.
        skip: number of rows at the beginning to leave out; blocks with no others are not decoded.

    Raises:
        UnreadableObject: its schema or its codec cannot be used.
    """
    blocks: Any = fastavro.block_reader(decompressed(file), handle_unicode_errors=_KEEP)
    if blocks.codec not in fastavro.read.BLOCK_READERS:
        raise UnreadableObject("unknown-compression", f"the codec {blocks.codec[:_SHOWN]!r} cannot be read")
    try:
        schema = read_schema(blocks.metadata["avro.schema"])
    except DuplicateField as error:
        raise UnreadableObject("duplicate-column", str(error)) from None
    except InvalidSchema as error:
        raise UnreadableObject("unusable-schema", str(error)[:_EXPLAINED]) from None
    if schema.recursive:
        # fastavro's reader in Python: the compiled one overflows the stack of the process on values nested deeply.
        file.seek(0)
        blocks = _read_py.block_reader(decompressed(file), handle_unicode_errors=_KEEP)
    first_number = 0
    for block in blocks:
        if block.num_records < 0:  # else rows would get the numbers of earlier ones
            raise UnreadableObject("unreadable-object", f"a block says that it has {block.num_records} rows")
        if first_number + block.num_records > skip:
            yield from _rows_of_block(block, first_number)
        first_number += block.num_records


def _rows_of_block(block: Any, first: int) -> Iterator[ObjectRow]:
    """The rows of a block; the rest of one that cannot be decoded is one row that says so."""
    number, last_number = first, first + block.num_records
    if block.num_records > max(_ROWS, block.size * _MOST_RECORDS_A_BYTE):
        detail = f"a block of {block.size} bytes says that it has {block.num_records} rows"
        raise UnreadableObject("unreadable-object", detail)
    try:
        for record in block:
            number += 1
            if not isinstance(record, dict):
                raise UnreadableObject("not-a-record", "the schema of the object is not a record")
            yield row_of(number, record)
    except (MemoryError, OSError, UnreadableObject):
        raise
    except Exception as error:  # noqa: BLE001 - bytes without meaning make fastavro fail in many ways
        rows = f"row {last_number}" if number + 1 == last_number else f"rows {number + 1} to {last_number}"
        detail = f"{rows}: the rest of a block cannot be decoded ({type(error).__name__})"
        yield ObjectRow(number + 1, None, "unreadable-object", detail)


def _tolerant(read_value: Callable[..., Any]) -> Callable[..., Any]:
    """A reader of a logical type that fails on no value: the row with it is refused, and the others are read."""

    def read_or_mark(data: Any, writer_schema: Any = None, reader_schema: Any = None) -> Any:
        try:
            return read_value(data, writer_schema, reader_schema)
        except Exception:  # noqa: BLE001 - such as OverflowError, ValueError
            return NoValue()

    return read_or_mark


def tolerate_bad_values() -> None:
    """Have fastavro read values that Python cannot represent as `NoValue`, in this process."""
    readers = fastavro.read.LOGICAL_READERS  # both readers use it
    for name, read_value in list(readers.items()):
        readers[name] = _tolerant(read_value)
