"""Queries of SQLite by others: read only, of bounded time, rows and bytes."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from hifi.runtime.errors import HifiError, Rejected

READS: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
"""Actions of a query that changes nothing."""
_VALUE_BYTES: Final = 64
"""Counted for a value that is neither text nor bytes."""

Permission = Callable[..., int]
"""SQLite's authorizer: gets action, two arguments, schema and trigger; returns SQLITE_OK or SQLITE_DENY."""


class Result(NamedTuple):
    """The result of a query."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    more: bool
    """Whether there are more rows than these."""


class QueryRejected(Rejected):
    """The query is wrong, or does what it may not do."""

    def __init__(self, detail: str) -> None:
        super().__init__("query", detail)


class QueryTooExpensive(HifiError):
    """The query takes longer, or returns more, than is allowed."""


def only_reads(action: int, *_: str | None) -> int:
    """A permission for everything that changes nothing."""
    return sqlite3.SQLITE_OK if action in READS else sqlite3.SQLITE_DENY


def select(
    database: sqlite3.Connection,
    sql: str,
    values: Sequence[Any] = (),
    *,
    rows: int,
    within_s: float,
    longest_value_bytes: int,
    permission: Permission = only_reads,
    result_bytes: int | None = None,
    steps: int = 10_000,
) -> Result:
    """The first rows of a query. Afterwards the connection has no limits.

    Args:
        database: with its tables.
        sql: the query.
        values: of its places.
        rows: most rows.
        within_s: longest time, seconds.
        longest_value_bytes: of a value that the query makes.
        permission: asked while the query is prepared.
        result_bytes: most bytes of all rows, about; None: any.
        steps: of SQLite's machine between two looks at the clock.

    Raises:
        QueryRejected: it is no query, changes something, or fails.
        QueryTooExpensive: it takes longer, or has more bytes.
    """
    end_s = time.monotonic() + within_s
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest_value_bytes)
    database.set_authorizer(permission)
    database.set_progress_handler(lambda: time.monotonic() > end_s, steps)
    cursor = None
    try:
        cursor = database.execute(sql, values)
        return _fetch(cursor, rows, result_bytes)
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
        if time.monotonic() > end_s:
            raise QueryTooExpensive(f"the query takes longer than {within_s:g} s") from None
        raise QueryRejected(f"the query fails: {error}") from None
    finally:
        if cursor is not None:
            cursor.close()
        database.set_progress_handler(None, 0)
        database.set_authorizer(None)


def _fetch(cursor: sqlite3.Cursor, max_rows: int, max_bytes: int | None) -> Result:
    if cursor.description is None:
        raise QueryRejected("this is no query: write one SELECT")
    columns = [column[0] for column in cursor.description]
    rows: list[tuple[Any, ...]] = []
    size = 0
    # Not several at a time: one may be as long as all may be together.
    for row in islice(cursor, max_rows + 1):
        if max_bytes is not None:
            for value in row:
                size += len(value) if isinstance(value, (str, bytes)) else _VALUE_BYTES
            if size > max_bytes:
                raise QueryTooExpensive(f"the result has more than {max_bytes:,} bytes")
        rows.append(row)
    return Result(columns, rows[:max_rows], len(rows) > max_rows)
