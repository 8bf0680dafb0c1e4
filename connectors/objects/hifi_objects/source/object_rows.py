"""The rows of open objects, read by a worker. One that ends the worker repeatedly ends with a row that says so."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from hifi.pipe.sources.kind import MOST_EVENTS
from hifi.runtime import log
from hifi_objects.source.row_worker import RowWorker, WorkerDied
from hifi_objects.source.rows.row import ObjectRow
from hifi_objects.source.rows.row_format import RowFormat
from hifi_objects.source.store import OpenObject

T = TypeVar("T")

_DEATHS: Final = 2
"""Ends of the worker at one row after which the rest of the object is not read."""
_CAREFUL_ROWS: Final = 2 * MOST_EVENTS
"""Rows after an end of the worker that are asked for one by one, so that all those before the bad one are read."""

logger = log.get(__name__)


class RowBatch(NamedTuple):
    """Rows of an object."""

    rows: list[ObjectRow]
    read_bytes: int
    """Of the object so far."""


class ObjectRows:
    """Reads one object after the other."""

    def __init__(self, row_format: RowFormat, worker: RowWorker) -> None:
        """Start nothing yet.

        Args:
            row_format: of the objects.
            worker: for this reader alone; it is closed with it.
        """
        self._row_format = row_format
        self._worker = worker
        self._is_open = False

    async def close(self) -> None:
        """End the worker."""
        await asyncio.shield(asyncio.to_thread(self._worker.close))

    async def batches(
        self, open_object: OpenObject, path: str, row: int, last_row: int | None
    ) -> AsyncGenerator[RowBatch, None]:
        """The rows of an object after some, in batches.

        Args:
            open_object: at its beginning.
            path: of the object, for the log and for reasons.
            row: number of the last row to leave out; 0: none.
            last_row: number of the row at which a batch has to end; None: no matter where.

        Raises:
            ObjectGone: the object was changed meanwhile.
            OSError: it cannot be read; it may be possible later.
            Retryable: the worker cannot be started.
        """
        deaths, careful_until_row, self._is_open = 0, 0, False
        while True:
            read_batch = partial(
                self._read, open_object, path, row, last_row, one_by_one=row < careful_until_row
            )
            try:
                batch, complete = await self._in_thread(read_batch)
            except WorkerDied as error:
                deaths, careful_until_row = deaths + 1, row + _CAREFUL_ROWS
                logger.warning("object-reader-died", path=path, after_row=row, error=str(error))
                if deaths >= _DEATHS:
                    detail = f"{path}: the object cannot be read after row {row}: its reader {error}"
                    yield RowBatch([ObjectRow(row + 1, None, "unreadable-object", detail)], 0)
                    return
                continue
            if batch.rows:
                row = batch.rows[-1].number
                deaths = 0 if row >= careful_until_row else deaths
                yield batch
            if complete and last_row is None:
                return
            if last_row is not None and (complete or row >= last_row):
                last_row = None

    def _read(
        self, open_object: OpenObject, path: str, row: int, last_row: int | None, *, one_by_one: bool
    ) -> tuple[RowBatch, bool]:
        """The next rows, and whether there are no more of them (up to `last_row`). Blocks.

        Raises:
            WorkerDied: there is no row before its end.
        """
        if not self._is_open:
            self._worker.open(self._row_format, open_object.file, path, row)
            self._is_open = True
        rows: list[ObjectRow] = []
        while True:
            try:
                answer = self._worker.next(1 if one_by_one else MOST_EVENTS, last_row)
            except WorkerDied:
                self._is_open = False
                if rows:
                    return RowBatch(rows, 0), False
                raise
            open_object.check()
            rows += answer.as_rows()
            if answer.complete or not one_by_one or not answer.rows or len(rows) == MOST_EVENTS:
                return RowBatch(rows, answer.read_bytes), answer.complete

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run a function that blocks. If this is cancelled, the worker is ended, so that the function ends."""
        task = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._worker.kill()
            raise
        finally:
            await asyncio.wait({task})
            task.exception()  # if this is cancelled, nothing else retrieves it
