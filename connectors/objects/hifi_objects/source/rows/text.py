"""Rows of text: NDJSON and CSV."""

import csv
from collections.abc import Iterator
from typing import BinaryIO, Final

import orjson

from hifi_objects.source.rows.compression import decompressed
from hifi_objects.source.rows.row import ObjectRow, UnreadableObject, row_of

_BOM: Final = b"\xef\xbb\xbf"
_CHUNK_BYTES: Final = 64 * 1024


def ndjson_rows(file: BinaryIO, max_bytes: int) -> Iterator[ObjectRow]:
    """The lines of a file; empty ones are counted and left out.

    Args:
        file: at its beginning.
        max_bytes: largest line that is read.
    """
    for number, (line, size) in enumerate(_lines(file, max_bytes), 1):
        text = line.strip()
        if size > max_bytes:
            yield ObjectRow(
                number, None, {}, "too-large", f"the line has {size} bytes; the limit is {max_bytes}"
            )
        elif text:
            try:
                fields = orjson.loads(text)
            except orjson.JSONDecodeError:
                yield ObjectRow(number, text, {}, "not-json", "the line is not JSON")
                continue
            if isinstance(fields, dict):
                yield ObjectRow(number, text, fields)
            else:
                yield ObjectRow(number, text, {}, "not-json", "the line is not a JSON object")


def csv_rows(file: BinaryIO, max_bytes: int, delimiter: str) -> Iterator[ObjectRow]:
    """The records of a file after the first one, which names the columns; all values are text.

    Args:
        file: at its beginning.
        max_bytes: largest line that is read.
        delimiter: between values.

    Raises:
        UnreadableObject: the first record is missing, or names a column twice.
    """
    csv.field_size_limit(max_bytes)
    texts = (line.decode("utf-8", "surrogateescape") for line, _ in _lines(file, max_bytes))
    records = csv.reader(texts, delimiter=delimiter, strict=True)
    try:
        columns = next(records)
    except StopIteration:
        return
    except csv.Error as error:
        raise UnreadableObject("csv-header", f"the header cannot be read ({error})") from None
    if len(set(columns)) < len(columns):
        raise UnreadableObject("csv-header", "the header names a column twice")
    number = 0
    while True:
        number += 1
        try:
            record = next(records)
        except StopIteration:
            return
        except csv.Error as error:
            yield ObjectRow(number, None, {}, "not-csv", f"the record cannot be read ({error})")
            continue
        if not record:  # an empty line
            continue
        if len(record) != len(columns):
            detail = f"the record has {len(record)} values, and the header {len(columns)}"
            yield ObjectRow(number, None, {}, "not-csv", detail)
        else:
            yield row_of(number, dict(zip(columns, record, strict=True)))


def _lines(file: BinaryIO, max_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Each line, cut after the limit, and its size with the end of line, bytes."""
    content = decompressed(file)
    first = True
    while line := content.readline(max_bytes + 1):
        size, end = len(line), line
        while not end.endswith(b"\n") and (end := content.readline(_CHUNK_BYTES)):
            size += len(end)
        if first:
            line = line.removeprefix(_BOM)
            first = False
        yield line, size
