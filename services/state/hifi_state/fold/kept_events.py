"""A file that keeps events, one row for each, instead of the parts of windows."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from hifi.pipe.sources.step import StepSource
from hifi.spark.step_sql import FieldPart
from hifi_state.fold.key_limit import KeyLimit, Stretch
from hifi_state.fold.window_file import WindowFile
from hifi_state.fold.window_row import WindowRow


class KeptEvents(WindowFile):
    """The file of one step with `each`, `first` or `join`, see `WindowFile`."""

    def __init__(self, path: Path, parts: Sequence[FieldPart], step: StepSource) -> None:
        """Open the file; one that cannot be read is made anew.

        Args:
            path: of the file; its folder exists.
            parts: of the fields of the step, in order.
            step: the declaration.
        """
        self._step = step
        self._length_ms = step.length_ms
        super().__init__(path, parts, has_sessions=False)

    def _open(self) -> sqlite3.Connection:
        database = super()._open()
        database.execute("create index if not exists by_key on windows (key, of_with, start_ms)")
        return database

    def has_due(self, horizon_ms: int | None) -> bool:  # noqa: ARG002 - what is kept is no sign of results
        """See `WindowFile`."""
        return True

    def limit(self) -> KeyLimit | None:
        """See `WindowFile`. The file keeps an event as long as one of its stretch may come."""
        most_events = self._step.most_events
        assert most_events is not None
        return KeyLimit(most_events, self._length_ms, self._count)

    def _count(self, stretch: Stretch) -> int:
        (count,) = self._database.execute(
            "select count(*) from windows where key = ? and of_with = ? and start_ms >= ? and start_ms < ?"
            " and partition = ?",
            (
                stretch.key,
                stretch.of_with,
                stretch.start_ms,
                stretch.start_ms + self._length_ms,
                stretch.partition,
            ),
        ).fetchone()
        return int(count)

    @property
    def _emitted_ms(self) -> int:
        """Up to here results are written, milliseconds since 1970 UTC."""
        return 0 if self.progress is None else self.progress.emitted_ms or 0

    def _same_window(self, row: WindowRow) -> list[WindowRow]:  # noqa: ARG002 - as of windows
        """No other row: each event has its own."""
        return []
