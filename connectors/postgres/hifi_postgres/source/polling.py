"""Read a table or a query in the order of a column: a high-water mark, pages of rows up to it, batches of events."""

import asyncio
import hashlib
import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple
from urllib.parse import quote

from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.kind import MOST_EVENTS, PolledSource, SourceContext, SourceTurn
from hifi.pipe.sources.loop_slices import loop_slices
from hifi.pipe.sources.read_ahead import read_ahead
from hifi.runtime.clock import monotonic_s, now_us
from hifi.runtime.errors import Misconfigured
from hifi_postgres.declaration import SqlSource
from hifi_postgres.source.high_water_marks import HighWaterMarks
from hifi_postgres.source.positions import positioned, value_of
from hifi_postgres.source.progress import ENTRY, SqlProgress
from hifi_postgres.source.row_events import RowEvents
from hifi_postgres.source.rows import Page, PostgresRows, postgres_rows

_HELD_BACK_S: Final = 60.0
"""Time after which a warning says that transactions of the database hold the source back, seconds."""


class _ReadPage(NamedTuple):
    """Rows that were read and are not announced yet."""

    progress: SqlProgress
    """To write down before they are written, without an accepted time."""
    events: list[SourceEvent]
    remaining: int | None
    """Estimate of how many rows come after them."""


class SqlPolling(PolledSource):
    """The source of one pipe."""

    by_age = True

    def __init__(self, source: SqlSource, context: SourceContext) -> None:
        """Prepare the source; `read` begins to read.

        Args:
            source: as the pipe declares it.
            context: of the source.
        """
        self._source, self._pipe = source, context.pipe
        self._application = f"hifi {context.stream}/{context.pipe}"
        self._max_bytes = context.max_event_bytes
        table_or_query = (
            source.table
            or f"query-{hashlib.sha256((source.query or '').encode(), usedforsecurity=False).hexdigest()[:16]}"
        )
        table = f"{quote(source.database.name, safe='')}/{table_or_query}"
        self.name = f"sql/{table}/{','.join(source.order)}"
        """Name of what is read: the same on another server, to which the database was moved."""
        self._events = RowEvents(source, table, self._max_bytes)

    async def read(self, turn: SourceTurn) -> None:
        """Read from where the entries end until the turn is over.

        Raises:
            Fenced: the turn has ended otherwise.
            Retryable: the database does not answer.
            Misconfigured: the rows cannot be read.
        """
        entry, high_water_marks = turn.entries.get(ENTRY), HighWaterMarks(self._source.settle)
        progress = SqlProgress.new() if entry is None else SqlProgress.read(entry)
        async with postgres_rows(self._source, self._application, self._max_bytes, self._pipe) as rows:
            turn.works()
            turn.warn("settings", None)
            if progress.batch is not None:
                progress = await self._repeat(turn, rows, progress)
            while not turn.over():
                now_s, high_water_mark = monotonic_s(), await rows.mark()
                upper_bound = high_water_marks.settled(high_water_mark, now_s)
                self._warn(turn, progress, high_water_mark.value, high_water_marks.held_back_s(now_s))
                if upper_bound is not None:
                    progress = await self._read_pages(turn, rows, progress, upper_bound)
                await turn.pause(self._source.interval)

    async def _read_pages(
        self, turn: SourceTurn, rows: PostgresRows, progress: SqlProgress, upper_bound: str
    ) -> SqlProgress:
        """Write all rows up to a value. The next rows are read while some are written."""
        first_progress = progress
        async with aclosing(read_ahead(self._batches(rows, progress, upper_bound))) as batches:
            async for batch in batches:
                if turn.over():
                    break
                accepted_us = now_us()
                await turn.keep({ENTRY: batch.progress.accepted(accepted_us).entry()})
                await turn.write(self._partition(progress), batch.events, accepted_us, batch.remaining)
                progress = batch.progress.completed()
        if progress is not first_progress:
            await turn.keep({ENTRY: progress.entry()})  # so that the next reader reads nothing again
        return progress

    async def _batches(
        self, rows: PostgresRows, progress: SqlProgress, upper_bound: str
    ) -> AsyncGenerator[_ReadPage, None]:
        """The rows after the last one up to a value, as batches that can be written."""
        remaining_rows: int | None = None
        while True:
            page = await rows.page(progress.after, upper_bound, MOST_EVENTS)
            if not page.rows:
                return
            self._refuse_equal(page)
            # Rows before one without a position are written, and the next page begins with that one.
            if count := positioned([row.sort_key[0] for row in page.rows], progress.last):
                page = page.cut(count)
            if page.following is None:
                remaining_rows = 0
            elif remaining_rows is None:
                remaining_rows = await rows.estimate(page.rows[-1].sort_key, upper_bound)
            else:
                remaining_rows = max(0, remaining_rows - len(page.rows))
            keys = [row.key for row in page.rows] if self._source.partition_key else []
            batch_progress = progress.begun([row.sort_key for row in page.rows], keys)
            positions, events = batch_progress.positions(), list[SourceEvent]()
            for rows_slice, positions_slice in zip(
                loop_slices(page.rows), loop_slices(positions), strict=True
            ):
                events += self._events.of(rows_slice, positions_slice)
                await asyncio.sleep(0)
            yield _ReadPage(batch_progress, events, remaining_rows)
            if page.following is None:
                return
            progress = batch_progress.completed()

    async def _repeat(self, turn: SourceTurn, rows: PostgresRows, progress: SqlProgress) -> SqlProgress:
        """Write the rows again that may have been written, at the same positions.

        Rows that have gone or have another value now are left out: they were written, or changed before.
        """
        batch = progress.batch
        assert batch is not None
        existing_rows = await rows.named(batch.sort_keys)
        keys: Sequence[str | None] = batch.keys or [None] * len(batch.sort_keys)
        events = [
            self._events.event(existing_rows[sort_key], position, key)
            for sort_key, position, key in zip(batch.sort_keys, progress.positions(), keys, strict=True)
            if sort_key in existing_rows
        ]
        if events:
            await turn.write(self._partition(progress), events, batch.accepted_us)
        completed_progress = progress.completed()
        await turn.keep({ENTRY: completed_progress.entry()})
        return completed_progress

    def _partition(self, progress: SqlProgress) -> str:
        """Name of the source partition. Without a key positions depend on nothing but the rows."""
        return f"{self.name}/{progress.read_id}" if self._source.key else self.name

    def _refuse_equal(self, page: Page) -> None:
        sort_keys = [row.sort_key for row in page.rows]
        if page.following is not None:
            sort_keys.append(page.following)
        if any(value is None for sort_key in sort_keys for value in sort_key):
            raise Misconfigured(f"a column of `key` ({', '.join(self._source.key)}) is null in some row")
        if any(sort_key == following for sort_key, following in itertools.pairwise(sort_keys)):
            order_columns = ", ".join(self._source.order)
            raise Misconfigured(
                f"several rows have the same {order_columns}: name columns in `key` that identify a row"
            )

    def _warn(self, turn: SourceTurn, progress: SqlProgress, highest: str | None, held_back_s: float) -> None:
        is_below = (
            highest is not None
            and progress.after is not None
            and value_of(highest) < value_of(progress.after[0])
        )
        turn.warn(
            "table",
            f"its highest {self._source.column} is below the last one that was read: new rows are read only above it."
            " If the table was emptied or created again, give the pipe another name"
            if is_below
            else None,
        )
        turn.warn(
            "transactions",
            f"a transaction of the database has run for more than {held_back_s:.0f} s, and rows are read when it ends"
            if held_back_s > _HELD_BACK_S
            else None,
        )
