"""The file of a step: the parts of the results of open windows, and the progress that they are as of, in SQLite.

`EventFile` and `JoinFile` keep events in it instead.

Both change in one transaction. The file is a cache: one that is lost, damaged or of another declaration is made anew
from `enriched`.
"""

import contextlib
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hifi.record.step_account import NO_EVENTS, Tally
from hifi.runtime import log
from hifi.spark.step_sql import FieldPart, Merge, PartForm
from hifi_state.fold.key_limit import KeyLimit
from hifi_state.fold.progress import Progress
from hifi_state.fold.window_row import FoldedEvent, PartValue, WindowRow

_FORMAT: Final = 6
_LARGEST: Final = 2**63 - 1
_MOST_DIGITS: Final = 18
"""Whole numbers with more digits are kept as text, since SQLite's have 64 bits; and NaN is, which is null for it."""
_NO_EVENT: Final = (0, 0, None, None, None, False)
"""The columns of the event of a window."""
logger = log.get(__name__)


class WindowFile:
    """The file of one step, open in one process. Its methods may be called by one thread at a time.

    Attributes:
        without_row: events that `due`, since it was called last, has judged without a row that counts them.
        outcomes: to show for the events that it has judged, with their numbers.
    """

    def __init__(self, path: Path, parts: Sequence[FieldPart], *, has_sessions: bool) -> None:
        """Open the file; one that cannot be read is made anew.

        Args:
            path: of the file; its folder exists.
            parts: of the fields of the step, in order.
            has_sessions: whether windows of a key that overlap become one.
        """
        self._path = path
        self._parts = parts
        self._has_sessions = has_sessions
        self._declared = f"{has_sessions} {parts!r}"
        self.without_row = NO_EVENTS
        self.outcomes: Mapping[str, int] = {}
        try:
            self._database = self._open()
        except sqlite3.OperationalError:  # the disk is full or fails, or the file is in use: it may be good
            raise
        except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
            logger.warning("state-file-unusable", path=str(path), error=str(error))
            self._delete()
            self._database = self._open()

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            database.execute("pragma journal_mode = wal")
            database.execute("pragma synchronous = normal")
            if database.execute("pragma quick_check(1)").fetchone() != ("ok",):
                raise ValueError("the file is damaged")
            database.execute("create table if not exists progress (format integer, parts text, body blob)")
            self.progress = self._read_progress(database)
            if self.progress is None:  # the tables may be of another declaration, which has kept nothing
                database.execute("drop table if exists windows")
            columns = "".join(f", p{index}" for index in range(len(self._parts)))
            database.execute(
                "create table if not exists windows (start_ms integer, end_ms integer, key text, inputs integer"
                ", ending integer, ending_xor integer"
                ", partition integer, raw integer, id text, headers text, data blob, of_with integer"
                f"{columns}, primary key (end_ms, key, partition, raw)) without rowid"
            )
            if self._has_sessions:
                database.execute("create index if not exists by_key on windows (key, end_ms)")
                database.execute("create index if not exists by_start on windows (start_ms)")
        except BaseException:
            database.close()
            raise
        return database

    def _read_progress(self, database: sqlite3.Connection) -> Progress | None:
        row = database.execute("select format, parts, body from progress").fetchone()
        if row is None:
            return None
        if row[:2] != (_FORMAT, self._declared):
            raise ValueError("the file is of another declaration or release")
        return Progress.decode(row[2])

    def clear(self) -> None:
        """Forget everything."""
        self._database.close()
        self._delete()
        self._database = self._open()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def due(self, horizon_ms: int | None) -> Iterator[WindowRow]:
        """The rows of the windows that end at or before a time, in the order of window and key.

        Args:
            horizon_ms: milliseconds since 1970 UTC; None: no window ends before.
        """
        if horizon_ms is None:
            return
        rows = self._database.execute(
            "select * from windows where end_ms <= ? order by end_ms, key", (horizon_ms,)
        )
        yield from map(self._row, rows)

    def has_due(self, horizon_ms: int | None) -> bool:
        """Whether `due` may have rows."""
        query = "select 1 from windows where end_ms <= ? limit 1"
        return self._database.execute(query, (horizon_ms,)).fetchone() is not None

    def earliest_open_ms(self, horizon_ms: int | None) -> int | None:
        """The earliest start of the windows that end after a time; None: there are none.

        Args:
            horizon_ms: milliseconds since 1970 UTC; None: all windows do.
        """
        end_ms = -_LARGEST if horizon_ms is None else horizon_ms
        row = self._database.execute(
            "select start_ms from windows where end_ms > ? order by start_ms limit 1", (end_ms,)
        ).fetchone()
        return None if row is None else int(row[0])

    def ending(self, horizon_ms: int | None) -> Tally:
        """Count and XOR of the events whose last window ends after a time; reads all such windows.

        Args:
            horizon_ms: milliseconds since 1970 UTC; None: all windows do.
        """
        tallies = self._database.execute(
            "select ending, ending_xor from windows where end_ms > ?",
            (-_LARGEST if horizon_ms is None else horizon_ms,),
        )
        event_count = xor = 0
        for count, ending_xor in tallies:  # not `total`, which takes twice the time for millions of windows
            event_count += count
            xor ^= ending_xor
        return Tally(event_count, xor)

    def limit(self) -> KeyLimit | None:
        """The limit of events for the next ranges, until their rows are applied; None: a row has any number."""
        return None

    def apply(self, rows: Iterable[WindowRow], progress: Progress) -> None:
        """Merge the rows of a range, drop the windows that have results, and keep the progress: all or nothing.

        Args:
            rows: of the range.
            progress: that the file is as of then.
        """
        with self._transaction():
            for row in rows:
                self._merge(row)
            if progress.emitted_ms is not None:
                self._drop(progress.emitted_ms)
            self._database.execute("delete from progress")
            self._database.execute(
                "insert into progress values (?, ?, ?)", (_FORMAT, self._declared, progress.encode())
            )
        self.progress = progress

    def windows(self) -> int:
        """Number of open windows, each key counted."""
        (count,) = self._database.execute("select count(*) from windows").fetchone()
        return int(count)

    def size_bytes(self) -> int:
        """Size of what the file holds."""
        (pages,) = self._database.execute("pragma page_count").fetchone()
        (free_pages,) = self._database.execute("pragma freelist_count").fetchone()
        (page_bytes,) = self._database.execute("pragma page_size").fetchone()
        return int((pages - free_pages) * page_bytes)

    def _drop(self, emitted_ms: int) -> None:
        """Drop what no later result needs.

        Args:
            emitted_ms: windows up to here have their results, milliseconds since 1970 UTC.
        """
        self._database.execute("delete from windows where end_ms <= ?", (emitted_ms,))

    def _merge(self, row: WindowRow) -> None:
        for earlier_row in self._same_window(row):
            self._database.execute(
                "delete from windows where end_ms = ? and key = ?", (earlier_row.end_ms, row.key)
            )
            row = WindowRow(
                min(earlier_row.start_ms, row.start_ms),
                max(earlier_row.end_ms, row.end_ms),
                row.key,
                earlier_row.inputs + row.inputs,
                [merged(*values) for values in zip(self._parts, earlier_row.parts, row.parts, strict=True)],
                earlier_row.ending.plus(row.ending),
            )
        event = row.event or _NO_EVENT
        marks = ", ".join("?" * (6 + len(event) + len(row.parts)))
        self._database.execute(
            f"insert into windows values ({marks})",  # noqa: S608 - question marks
            (row.start_ms, row.end_ms, row.key, row.inputs, *row.ending, *event, *map(_stored, row.parts)),
        )

    def _same_window(self, row: WindowRow) -> list[WindowRow]:
        """The rows that are of the same window; several sessions may become one, which touches no other."""
        if self._has_sessions:
            columns_of_rows = self._database.execute(
                "select * from windows where key = ? and end_ms > ? and start_ms < ?",
                (row.key, row.start_ms, row.end_ms),
            )
        else:
            columns_of_rows = self._database.execute(
                "select * from windows where end_ms = ? and key = ?", (row.end_ms, row.key)
            )
        return list(map(self._row, columns_of_rows))

    def _row(self, columns: Sequence[Any]) -> WindowRow:
        (
            start_ms,
            end_ms,
            key,
            inputs,
            ending,
            ending_xor,
            partition,
            raw,
            event_id,
            headers,
            data,
            of_with,
            *values,
        ) = columns
        event = (
            None
            if event_id is None
            else FoldedEvent(partition, raw, event_id, headers, data, of_with=bool(of_with))
        )
        part_values = [self._value(*pair) for pair in zip(self._parts, values, strict=True)]
        return WindowRow(start_ms, end_ms, key, inputs, part_values, Tally(ending, ending_xor), event)

    @staticmethod
    def _value(part: FieldPart, stored: PartValue) -> PartValue:
        if part.form is PartForm.TEXT or not isinstance(stored, str):
            return stored
        return int(stored) if part.form is PartForm.WHOLE else float(stored)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._database.execute("rollback")
            raise
        self._database.execute("commit")

    def _delete(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)


def merged(part: FieldPart, first: PartValue, second: PartValue) -> PartValue:
    """Two values of a part as one."""
    if first is None or second is None:
        return second if first is None else first
    if part.merge is Merge.ADD:
        return first + second  # type: ignore[operator]  # both have the part's form
    compare = min if part.merge is Merge.LEAST else max
    return compare(first, second)


def _stored(value: PartValue) -> PartValue:
    is_long = isinstance(value, int) and len(str(abs(value))) > _MOST_DIGITS
    is_nan = isinstance(value, float) and math.isnan(value)
    return str(value) if is_long or is_nan else value
