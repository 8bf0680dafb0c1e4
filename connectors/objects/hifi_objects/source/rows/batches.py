"""Read an open object in batches, by its format. What cannot be read of it becomes its last row."""

from collections.abc import Iterator
from itertools import dropwhile
from typing import BinaryIO, Final

from hifi.runtime import log
from hifi_objects.declaration import ObjectsSource
from hifi_objects.source.rows.row import ObjectRow, UnreadableObject

_BATCH_BYTES: Final = 4 * 1024 * 1024

logger = log.get(__name__)


class RowBatches:
    """The rows of one object after some. Its methods block."""

    def __init__(self, source: ObjectsSource, file: BinaryIO, path: str, skip: int, max_bytes: int) -> None:
        """Read nothing yet.

        Args:
            source: as the pipe declares it.
            file: with the content, at its beginning.
            path: of the object, for the log.
            skip: number of the last row to leave out; 0: none.
            max_bytes: largest row.
        """
        self._path = path
        self._last = skip
        self._finished = False
        self._kept: ObjectRow | None = None
        rows = _rows(source, file, skip, max_bytes)
        self._rows = rows if not skip else dropwhile(lambda row: row.number <= skip, rows)

    def next(self, limit: int, through: int | None = None) -> list[ObjectRow]:
        """The next rows, in order; none: the object has ended.

        Args:
            limit: largest number of rows.
            through: number of the last row to return; None: no matter which.

        Raises:
            OSError: the file cannot be read; it may be possible later.
        """
        batch, size = list[ObjectRow](), 0
        while len(batch) < limit and size < _BATCH_BYTES:
            row = self._next()
            if row is None:
                break
            if through is not None and row.number > through:
                self._kept = row
                break
            batch.append(row)
            size += len(row.data or b"")
        return batch

    def _next(self) -> ObjectRow | None:
        kept, self._kept = self._kept, None
        if kept is not None or self._finished:
            return kept
        # Each error has a name of its own, because mypyc gives a name one type.
        try:
            row = next(self._rows, None)
        except UnreadableObject as unreadable:
            return self._unreadable(unreadable.reason, unreadable.detail)
        except OSError as failure:
            if failure.errno is not None:
                raise
            return self._failed(failure)
        except Exception as error:  # noqa: BLE001 - whatever a parser raises on a damaged file
            return self._failed(error)
        if row is None:
            self._finished = True
        else:
            self._last = row.number
        return row

    def _failed(self, error: Exception) -> ObjectRow:
        logger.warning("object-unreadable", path=self._path, after_row=self._last, error=repr(error))
        detail = f"the object cannot be read after row {self._last} ({type(error).__name__})"
        return self._unreadable("unreadable-object", detail)

    def _unreadable(self, reason: str, detail: str) -> ObjectRow:
        self._finished = True
        return ObjectRow(self._last + 1, None, {}, reason, f"{self._path}: {detail}")


def _rows(source: ObjectsSource, file: BinaryIO, skip: int, max_bytes: int) -> Iterator[ObjectRow]:
    """All rows, or those after some where the format allows it; parsers are imported only where they are used."""
    match source.format:
        case "ndjson":
            from hifi_objects.source.rows.text import ndjson_rows

            return ndjson_rows(file, max_bytes)
        case "csv":
            from hifi_objects.source.rows.text import csv_rows

            return csv_rows(file, max_bytes, source.delimiter)
        case "parquet":
            from hifi_objects.source.rows.binary import parquet_rows

            return parquet_rows(file, skip)
        case "avro":
            from hifi_objects.source.rows.binary import avro_rows

            return avro_rows(file)
