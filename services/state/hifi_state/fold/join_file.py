"""The file of a step with `join`: it keeps the events of both pipes that results still need, one row for each."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hifi.pipe.sources.step import StepSource
from hifi.record.step_account import NO_EVENTS
from hifi_state.fold.kept_events import KeptEvents
from hifi_state.fold.window_row import WindowRow

_UNMATCHED: Final = "unmatched"


class JoinFile(KeptEvents):
    """The file of one step, see `KeptEvents`.

    The row of an event begins at its time and ends after the last time at which a partner may come. So an event comes
    when the horizon passes its time, with the pairs of it and earlier ones, and leaves when it passes the end: then it
    is known whether an event of `from` had a partner, and the account counts the event. Without a row are all that
    leave, but for those of `from` that have a result without a partner.
    """

    def __init__(self, path: Path, step: StepSource) -> None:
        """Open the file; one that cannot be read is made anew.

        Args:
            path: of the file; its folder exists.
            step: the declaration.
        """
        self._keeps_unmatched = step.join is not None and step.join.unmatched == "keep"
        super().__init__(path, [], step)

    def _open(self) -> sqlite3.Connection:
        database = super()._open()
        database.execute("create index if not exists by_start on windows (start_ms)")
        return database

    def due(self, horizon_ms: int | None) -> Iterator[WindowRow]:
        """A row for each result that is sure up to a time and was not before, in the order of time, key and event.

        The row of a pair ends 1 ms after the later of its times, and that of an event without a partner where its own
        row does.

        Args:
            horizon_ms: milliseconds since 1970 UTC, of a whole second, as all horizons; None: no event is before.
        """
        self.without_row, self.outcomes = NO_EVENTS, {}
        if horizon_ms is None:
            return
        emitted_ms, unmatched_count = self._emitted_ms, 0
        rows = self._database.execute(
            "select start_ms + 1 as due_ms, 0 as leaves, * from windows where start_ms >= ? and start_ms < ?"
            " union all select end_ms, 1, * from windows where end_ms > ? and end_ms <= ?"
            " order by due_ms, key, leaves, partition, raw",
            (emitted_ms, horizon_ms, emitted_ms, horizon_ms),
        )
        for due_ms, leaves, *columns in rows:
            row = self._row(columns)
            assert row.event is not None
            if not leaves:
                yield from self._pairs(row, due_ms)
                continue
            is_unmatched = not row.event.of_with and not self._has_partner(row)
            unmatched_count += is_unmatched
            if is_unmatched and self._keeps_unmatched:
                yield row
            else:
                self.without_row = self.without_row.plus(row.ending)
        self.outcomes = {_UNMATCHED: unmatched_count}

    def _pairs(self, row: WindowRow, due_ms: int) -> Iterator[WindowRow]:
        """The pairs of an event and earlier ones, or those of its time: each pair belongs to one of its events."""
        assert row.event is not None
        of_with = row.event.of_with
        partner_rows = self._database.execute(
            "select * from windows where key = ? and of_with = ? and start_ms >= ? and start_ms <= ?"
            " order by start_ms, partition, raw",
            (row.key, not of_with, row.start_ms - self._length_ms, row.start_ms - of_with),
        )
        for partner_row in map(self._row, partner_rows):
            pair = (partner_row.event, row.event) if of_with else (row.event, partner_row.event)
            yield WindowRow(partner_row.start_ms, due_ms, row.key, 2, [], NO_EVENTS, *pair)

    def _has_partner(self, row: WindowRow) -> bool:
        """Whether an event of `from` that leaves had one."""
        partner = self._database.execute(
            "select 1 from windows where key = ? and of_with = 1 and start_ms >= ? and start_ms <= ? limit 1",
            (row.key, row.start_ms - self._length_ms, row.start_ms + self._length_ms),
        ).fetchone()
        return partner is not None

    def _drop(self, emitted_ms: int) -> None:
        """Drop what no later result needs: events of `with` stay until those of `from` that they match have left."""
        leaving_ms = self._emitted_ms, emitted_ms
        self._database.execute("delete from windows where end_ms <= ?", (emitted_ms - self._length_ms,))
        self._database.execute(
            "delete from windows where end_ms > ? and end_ms <= ? and not of_with", leaving_ms
        )
        self._database.execute("update windows set data = null where end_ms > ? and end_ms <= ?", leaving_ms)
