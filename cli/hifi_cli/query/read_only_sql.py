"""A query of SQLite that can only read, for a bounded time."""

import sqlite3
from collections.abc import Iterable
from typing import Final

from hifi.runtime import read_only_sql
from hifi.runtime.errors import Misconfigured
from hifi.runtime.read_only_sql import QueryRejected, QueryTooExpensive, Result
from hifi_cli.query.record_tables import NAMES, create_tables

_LONGEST_VALUE_BYTES: Final = 64 * 1024 * 1024
"""Of a value that a query makes; a record has at most 4 MiB."""


def tables_read(sql: str, tables: Iterable[str]) -> list[str]:
    """The tables that a query reads, in the order of `tables`.

    Raises:
        Misconfigured: it is not one query, changes something, or reads what is not there.
    """
    table_names = list(tables)
    table_list = f"there are the tables {', '.join(table_names)}, each with the columns {', '.join(NAMES)}"
    database = sqlite3.connect(":memory:")
    try:
        create_tables(database, table_names)
        pages = dict(database.execute("SELECT rootpage, name FROM sqlite_schema"))
        database.set_authorizer(read_only_sql.only_reads)
        # The authorizer is not told of every table that is read: the columns of a USING are left out.
        steps = database.execute(f"EXPLAIN {sql}").fetchall()
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        if "not authorized" in str(error):
            raise Misconfigured("hifi query only reads: write one SELECT") from None
        raise Misconfigured(f"the query cannot be read: {error}; {table_list}") from None
    finally:
        database.close()
    opened_tables = {pages.get(page) for _, step, _, page, *_ in steps if step == "OpenRead"}
    read_tables = [name for name in table_names if name in opened_tables]
    if not read_tables:
        raise Misconfigured(f"the query reads no table; {table_list}")
    return read_tables


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
    try:
        return read_only_sql.select(
            database, sql, rows=rows, within_s=within_s, longest_value_bytes=_LONGEST_VALUE_BYTES
        )
    except QueryTooExpensive as error:
        raise Misconfigured(f"{error}; read less (--since), or allow more (--within)") from None
    except QueryRejected as error:
        raise Misconfigured(error.detail) from None
