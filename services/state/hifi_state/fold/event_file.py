"""The file of a step with `each` or `first`: it keeps the events that results still need, one row for each."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from hifi.pipe.sources.step import StepSource
from hifi.record.step_account import NO_EVENTS
from hifi.spark.step_sql import FieldPart
from hifi_state.fold.kept_events import KeptEvents
from hifi_state.fold.trailing_window import TrailingWindow, Values
from hifi_state.fold.window_file import merged
from hifi_state.fold.window_row import WindowRow

_REPEATED: Final = "repeated"


class EventFile(KeptEvents):
    """The file of one step, see `KeptEvents`: without a row are the events that are not the first of their key."""

    def __init__(self, path: Path, parts: Sequence[FieldPart], step: StepSource) -> None:
        """Open the file; one that cannot be read is made anew.

        Args:
            path: of the file; its folder exists.
            parts: of the fields of the step, in order.
            step: the declaration.
        """
        self._passes_first = step.first is not None
        super().__init__(path, parts, step)

    def due(self, horizon_ms: int | None) -> Iterator[WindowRow]:
        """A row for each result of the events up to a time that have none, in the order of time, key and event.

        With `each` it has the parts of all events that count in the result; with `first` they are those that pass on.

        Args:
            horizon_ms: milliseconds since 1970 UTC, of a whole second, as all horizons; None: no event is before.
        """
        self.without_row, self.outcomes = NO_EVENTS, {}
        if horizon_ms is None:
            return
        columns_of_rows = self._database.execute(
            "select * from windows where end_ms > ? and end_ms <= ? order by end_ms, key, partition, raw",
            (self._emitted_ms, horizon_ms),
        )
        rows = map(self._row, columns_of_rows)
        yield from self._first_rows(rows) if self._passes_first else self._trailing_rows(rows)

    def _trailing_rows(self, rows: Iterator[WindowRow]) -> Iterator[WindowRow]:
        windows: dict[str, TrailingWindow] = {}
        for (end_ms, key), same_rows in groupby(rows, lambda row: (row.end_ms, row.key)):
            event_rows = list(same_rows)
            window = windows.get(key)
            if window is None:
                window = windows[key] = self._earlier_events(key, end_ms)
            for row in event_rows:
                window.enter(end_ms, row.parts)
            window.leave(end_ms - self._length_ms)
            total, count = window.total(), len(window)
            for row in event_rows:
                yield row._replace(start_ms=end_ms - 1 - self._length_ms, inputs=count, parts=total)

    def _earlier_events(self, key: str, end_ms: int) -> TrailingWindow:
        window = TrailingWindow(self._merged)
        rows = self._database.execute(
            "select * from windows where key = ? and of_with = 0 and start_ms >= ? and start_ms < ?"
            " order by start_ms, partition, raw",
            (key, end_ms - 1 - self._length_ms, end_ms - 1),
        )
        for row in map(self._row, rows):
            window.enter(row.end_ms, row.parts)
        return window

    def _first_rows(self, rows: Iterator[WindowRow]) -> Iterator[WindowRow]:
        last_ends_ms: dict[str, int | None] = {}
        for row in rows:
            if row.key not in last_ends_ms:
                (last_ends_ms[row.key],) = self._database.execute(
                    "select max(start_ms) + 1 from windows where key = ? and of_with = 0 and start_ms < ?",
                    (row.key, row.start_ms),
                ).fetchone()
            last_end_ms = last_ends_ms[row.key]
            last_ends_ms[row.key] = row.end_ms
            if last_end_ms is None or row.end_ms - last_end_ms > self._length_ms:
                yield row
            else:
                self.without_row = self.without_row.plus(row.ending)
                self.outcomes = {_REPEATED: self.without_row.events}

    def _drop(self, emitted_ms: int) -> None:
        self._database.execute("delete from windows where end_ms <= ?", (emitted_ms - self._length_ms,))
        if self._passes_first:
            self._database.execute(
                "update windows set headers = null, data = null where end_ms > ? and end_ms <= ?",
                (self._emitted_ms, emitted_ms),
            )

    def _merged(self, first: Values, second: Values) -> Values:
        return [merged(*values) for values in zip(self._parts, first, second, strict=True)]
