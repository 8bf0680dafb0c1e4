"""A query of SQLite that can only read, for a bounded time."""

import sqlite3
import time
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from hifi.runtime.errors import Misconfigured
from hifi_cli.query.record_tables import NAMES, create_tables

_READS: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_LONGEST_VALUE_BYTES: Final = 64 * 1024 * 1024
"""Of a value that a query makes; a record has at most 4 MiB."""
_STEPS: Final = 10_000
"""Of SQLite's machine, some milliseconds, between two looks at the clock."""


class Result(NamedTuple):
    """What a query returns."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    more: bool
    """Whether there are more rows than these."""


def tables_read(sql: str, tables: Iterable[str]) -> list[str]:
    """The tables that a query reads, in the order of `tables`.

    Raises:
        Misconfigured: it is not one query, changes something, or reads what is not there.
    """
    names = list(tables)
    what_there_is = f"there are the tables {', '.join(names)}, each with the columns {', '.join(NAMES)}"
    database = sqlite3.connect(":memory:")
    try:
        create_tables(database, names)
        pages = dict(database.execute("SELECT rootpage, name FROM sqlite_schema"))
        database.set_authorizer(_permission)
        # The authorizer is not told of every table that is read: the columns of a USING are left out.
        steps = database.execute(f"EXPLAIN {sql}").fetchall()
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        if "not authorized" in str(error):
            raise Misconfigured("hifi query only reads: write one SELECT") from None
        raise Misconfigured(f"the query cannot be read: {error}; {what_there_is}") from None
    finally:
        database.close()
    opened = {pages.get(page) for _, step, _, page, *_ in steps if step == "OpenRead"}
    read = [name for name in names if name in opened]
    if not read:
        raise Misconfigured(f"the query reads no table; {what_there_is}")
    return read


def select(database: sqlite3.Connection, sql: str, *, rows: int, within_s: float) -> Result:
    """The first rows of a query, which `tables_read` has checked.

    Args:
        database: with its tables.
        sql: the query.
        rows: most rows.
        within_s: longest time, seconds.

    Raises:
        Misconfigured: it fails, or takes longer.
    """
    end_s = time.monotonic() + within_s
    database.set_authorizer(_permission)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE_BYTES)
    database.set_progress_handler(lambda: time.monotonic() > end_s, _STEPS)
    try:
        cursor = database.execute(sql)
        first = cursor.fetchmany(rows + 1)
    except (sqlite3.Error, OverflowError, MemoryError) as error:
        if time.monotonic() > end_s:
            raise Misconfigured(
                f"the query takes longer than {within_s:g} s; read less (--since), or allow more (--within)"
            ) from None
        raise Misconfigured(f"the query fails: {error}") from None
    columns = [column[0] for column in cursor.description]
    return Result(columns, first[:rows], len(first) > rows)


def _permission(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY
