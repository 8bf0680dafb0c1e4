"""Read an open object in batches, by its format. What cannot be read of it becomes its last row."""

from collections.abc import Iterator
from time import monotonic
from typing import BinaryIO, Final

from hifi.runtime import log
from hifi_objects.source.rows.row import ObjectRow, UnreadableObject
from hifi_objects.source.rows.row_format import RowFormat

_BATCH_BYTES: Final = 4 * 1024 * 1024
_BATCH_S: Final = 5.0
"""Time after which a batch ends, even without rows, so that its caller sees that there is progress."""

logger = log.get(__name__)


class RowBatches:
    """The rows of one object after some. Its methods block."""

    def __init__(self, row_format: RowFormat, file: BinaryIO, path: str, skip: int) -> None:
        """Read nothing yet.

        Args:
            row_format: of the object.
            file: with the content, at its beginning.
            path: of the object, for the log.
            skip: number of the last row to leave out; 0: none.
        """
        self._path = path
        self._skip = skip
        self._last = skip
        self._format = row_format.format
        self._max_bytes = row_format.max_bytes
        self._kept_row: ObjectRow | None = None
        self._rows = _rows(row_format, file, skip)
        self._finished = False
        self.complete = False
        """Whether there are no more rows, or none up to the `last_row` of the last call."""

    def next(self, limit: int, last_row: int | None = None, patience_s: float = _BATCH_S) -> list[ObjectRow]:
        """The next rows, in order; possibly none.

        Args:
            limit: largest number of rows.
            last_row: number of the last row to return; None: no matter which.
            patience_s: time after which the batch ends.

        Raises:
            OSError: the file cannot be read; it may be possible later.
        """
        batch, size, until_s = list[ObjectRow](), 0, monotonic() + patience_s
        self.complete = False
        while len(batch) < limit and size < _BATCH_BYTES:
            row = self._next()
            if row is None:
                self.complete = True
                break
            if last_row is not None and row.number > last_row:
                self._kept_row, self.complete = row, True
                break
            if row.number > self._skip:
                batch.append(row)
                size += len(row.data or b"")
            if monotonic() > until_s:
                break
        return batch

    def _next(self) -> ObjectRow | None:
        kept_row, self._kept_row = self._kept_row, None
        if kept_row is not None or self._finished:
            return kept_row
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
            return None
        self._last = max(self._last, row.number)
        return self._checked(row)

    def _checked(self, row: ObjectRow) -> ObjectRow:
        """The row, with the path in its reason; refused if it is too large."""
        if row.data is not None and len(row.data) > self._max_bytes:
            detail = f"row {row.number} has {len(row.data)} bytes as JSON; the limit is {self._max_bytes}"
            return ObjectRow(row.number, None, "too-large", f"{self._path}: {detail}")
        if row.reason:
            row.detail = f"{self._path}: {row.detail}"
        return row

    def _failed(self, error: Exception) -> ObjectRow:
        logger.warning("object-unreadable", path=self._path, after_row=self._last, error=repr(error))
        detail = (
            f"the object cannot be read after row {self._last} ({type(error).__name__}): it is damaged, or has "
            f"another format than {self._format}; write it anew under another name"
        )
        return self._unreadable("unreadable-object", detail)

    def _unreadable(self, reason: str, detail: str) -> ObjectRow:
        self._finished = True
        return ObjectRow(self._last + 1, None, reason, f"{self._path}: {detail}")


def _rows(row_format: RowFormat, file: BinaryIO, skip: int) -> Iterator[ObjectRow]:
    """All rows, or those after some where the format allows it; parsers are imported only where they are used."""
    match row_format.format:
        case "ndjson":
            from hifi_objects.source.rows.text import ndjson_rows

            return ndjson_rows(file, row_format.max_bytes, row_format.encoding)
        case "csv":
            from hifi_objects.source.rows.text import csv_rows

            return csv_rows(file, row_format.max_bytes, row_format.delimiter, row_format.encoding)
        case "parquet":
            from hifi_objects.source.rows.binary import parquet_rows

            return parquet_rows(file, skip)
        case _:
            from hifi_objects.source.rows.binary import avro_rows

            return avro_rows(file, skip)
