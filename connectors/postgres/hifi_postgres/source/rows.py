"""Read rows from PostgreSQL, each time in a short read-only transaction."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from psycopg import AsyncConnection, Error, OperationalError
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL

from hifi.runtime.errors import Misconfigured, Retryable
from hifi_postgres.declaration import PolledDatabase, SqlSource
from hifi_postgres.judged_address import with_judged_addresses
from hifi_postgres.source.high_water_marks import HighWaterMark
from hifi_postgres.source.progress import SortKey
from hifi_postgres.source.statements import RowStatements, relation
from hifi_postgres.source.table_row import TableRow, table_row

_WRONG: Final = ("0A", "25006", "28", "3D", "42")
"""Beginnings of codes that trying again does not change: not supported, writing, authorization, database, names."""
_DATA: Final = "22"
"""Beginning of the codes of errors that single values make."""
_ENCODING: Final = frozenset({"22021", "22P05"})
"""Codes of values that UTF-8, or the encoding of the database, does not have."""
_SETTINGS: Final = (
    "SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO'; SET LOCAL IntervalStyle = 'iso_8601'; "
    "SET LOCAL extra_float_digits = 3; SET LOCAL bytea_output = 'hex'"
)
"""Values as text must not depend on the settings of the user. Of each transaction: a pool has others between them.

Before PostgreSQL 12 a number needs 3 further digits to be exact; later each setting above 0 is its shortest exact text.
"""
_FETCH: Final = 64
"""Rows that are fetched at a time while it is not known how large they are."""
_MOST_FETCH_BYTES: Final = 128 * 1024 * 1024
"""Of rows that are fetched at a time, all of them as large as a row may be and the ones before them small."""
_PAGE_BYTES: Final = 4 * 1024 * 1024
_CAREFUL_ROWS: Final = 100
"""Rows that are read one by one after some row could not be read."""
_ALIVE: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}

_Connection: TypeAlias = AsyncConnection[tuple[Any, ...]]


class Page(NamedTuple):
    """Some rows in their order."""

    rows: list[TableRow]
    following: SortKey | None
    """The row after them; None: it was not asked for, or there is none now."""

    def cut(self, count: int) -> "Page":
        """The first rows of this page, at least one."""
        return self if count >= len(self.rows) else Page(self.rows[:count], self.rows[count].sort_key)


class UnreadableValue(Misconfigured):
    """A value of a row cannot be read, or computed.

    Attributes:
        is_of_row: the value is of a row that was asked for; else a query may compute it for any row.
    """

    def __init__(self, error: Error | UnicodeDecodeError) -> None:
        code = error.sqlstate if isinstance(error, Error) else None
        self.is_of_row = code is None or code in _ENCODING
        super().__init__(
            f"a value cannot be read ({type(error).__name__}{'' if code is None else f' {code}'}): correct it, or "
            "leave its row or column out with `query`"
        )


class PostgresRows:
    """The rows of one source, over one connection."""

    def __init__(self, connection: _Connection, statements: RowStatements, max_bytes: int) -> None:
        self._connection = connection
        self._statements = statements
        self._most_fetch = max(_FETCH, _MOST_FETCH_BYTES // max_bytes)

    async def mark(self) -> HighWaterMark:
        """The table now.

        Raises:
            Retryable: the database does not answer.
            Misconfigured: it cannot be read, or the server is a standby: that one does not tell which transactions run
                on the primary server, so rows that they commit late would be passed over.
        """
        [[value, next_transaction, oldest_transaction, is_standby]] = await self._all(
            self._statements.mark(), []
        )
        if is_standby:
            raise Misconfigured(
                "the server is a standby, which does not tell which transactions run, so rows that are committed late "
                "would be passed over: name the primary server in `source.database.host`"
            )
        return HighWaterMark(value, next_transaction, oldest_transaction)

    async def page(self, after: SortKey | None, upper_bound: str, limit: int) -> Page:
        """The rows after one, up to a value; fewer than the limit if they are large.

        Raises:
            Retryable, Misconfigured: they cannot be read.
        """
        try:
            return await self._page(after, upper_bound, limit)
        except UnreadableValue:
            return await self._careful_page(after, upper_bound, min(limit, _CAREFUL_ROWS))

    async def _page(self, after: SortKey | None, upper_bound: str, limit: int) -> Page:
        query, values = self._statements.page(after, upper_bound, limit + 1)
        page, size = list[TableRow](), 0
        with _failures():
            async with _transaction(self._connection), self._connection.cursor(name="hifi") as cursor:
                await cursor.execute(query, values)
                largest_bytes, fetch = 1, _FETCH
                while fetched_rows := await cursor.fetchmany(fetch):
                    for values_of_row in fetched_rows:
                        row = table_row(values_of_row)
                        if len(page) == limit or (page and size + row.size > _PAGE_BYTES):
                            return Page(page, row.sort_key)
                        page.append(row)
                        size += len(row.data or b"")
                        largest_bytes = max(largest_bytes, row.size)
                    if len(fetched_rows) < fetch:
                        break
                    fetch = max(_FETCH, min(self._most_fetch, _PAGE_BYTES // largest_bytes))
        return Page(page, None)

    async def named(self, sort_keys: Sequence[SortKey]) -> dict[SortKey, TableRow]:
        """The rows of these sort keys that still exist."""
        try:
            rows = await self._all(*self._statements.named(sort_keys))
        except UnreadableValue:
            careful_rows = [await self._row(sort_key) for sort_key in sort_keys]
            return {row.sort_key: row for row, _ in careful_rows if row is not None}
        return {row.sort_key: row for row in map(table_row, rows)}

    async def _careful_page(self, after: SortKey | None, upper_bound: str, limit: int) -> Page:
        """The rows after one, up to a value, read one by one: those that cannot be read say so.

        Raises:
            UnreadableValue: all of them cannot, as where a query computes a value for all rows at once.
        """
        sort_keys = await self._all(*self._statements.sort_keys(after, upper_bound, limit + 1))
        page, size, errors = list[TableRow](), 0, list[UnreadableValue]()
        for sort_key in sort_keys[:limit]:
            row, error = await self._row(sort_key)
            if row is None:
                continue
            if page and size + row.size > _PAGE_BYTES:
                return Page(page, row.sort_key)
            page.append(row)
            size += len(row.data or b"")
            if error is not None:
                errors.append(error)
        if errors and len(errors) == len(page) and not any(error.is_of_row for error in errors):
            raise errors[0]
        return Page(page, sort_keys[limit] if len(sort_keys) > limit else None)

    async def _row(self, sort_key: SortKey) -> tuple[TableRow | None, UnreadableValue | None]:
        """The row of a sort key, and why it cannot be read; None: it has gone."""
        if None in sort_key:
            return TableRow(sort_key, None, None, 0), None
        try:
            rows = await self._all(*self._statements.named([sort_key]))
        except UnreadableValue as error:
            return TableRow(sort_key, None, None, 0, str(error)), error
        return (table_row(rows[0]), None) if rows else (None, None)

    async def estimate(self, after: SortKey | None, upper_bound: str) -> int:
        """The number of rows after one, up to a value, by PostgreSQL's statistics."""
        plans = await self._all(*self._statements.estimate(after, upper_bound))
        return int(plans[0][0][0]["Plan"]["Plan Rows"])

    async def _all(self, query: Any, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with _failures():
            async with _transaction(self._connection):
                cursor = await self._connection.execute(query, values)
                return await cursor.fetchall()


@contextlib.asynccontextmanager
async def _transaction(connection: _Connection) -> AsyncIterator[None]:
    """A transaction whose settings decide how values are written as text."""
    async with connection.transaction():
        await connection.execute(_SETTINGS)
        yield


@contextlib.asynccontextmanager
async def postgres_rows(
    source: SqlSource, application: str, max_bytes: int, pipe: str
) -> AsyncIterator[PostgresRows]:
    """Connect, and look up the columns.

    Args:
        source: as the pipe declares it.
        application: name of the connection in the database's views.
        max_bytes: largest data of a row that is read.
        pipe: that declares it.

    Raises:
        Retryable: the database does not answer.
        Misconfigured: the table or a column does not exist, the user may not read it, or the password is missing.
    """
    connection = await _connect(source.database, application, pipe)
    try:
        with _failures():
            await connection.set_read_only(True)
            async with connection.transaction():
                # With values, though there are none: only then is `%%` in a query one `%`.
                lookup = SQL("SELECT * FROM {} LIMIT 0").format(relation(source))
                cursor = await connection.execute(lookup, [])
                columns = [(column.name, column.type_code) for column in cursor.description or ()]
        yield PostgresRows(connection, RowStatements(source, columns, max_bytes), max_bytes)
    finally:
        await connection.close()


async def _connect(database: PolledDatabase, application: str, pipe: str) -> _Connection:
    secret: dict[str, str] = {}
    if database.password_file is not None:
        try:
            text = await asyncio.to_thread(database.password_file.read_text, "utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Misconfigured(
                f"the password file {database.password_file} cannot be read: {error}"
            ) from None
        secret["password"] = text.rstrip("\r\n")
    options = await with_judged_addresses(
        {
            "host": database.host,
            "port": database.port,
            "dbname": database.name,
            "user": database.user,
            "sslmode": database.sslmode,
            "application_name": application[:63],
            "client_encoding": "UTF8",
            **_ALIVE,
            **secret,
        },
        pipe,
    )
    try:
        # Nothing is prepared: a pool such as PgBouncer gives each transaction another connection.
        return await AsyncConnection.connect(make_conninfo("", **options), prepare_threshold=None)
    except OperationalError as error:
        text = str(error).strip().splitlines()[-1]
        raise Retryable(f"PostgreSQL accepts no connection: {text}") from error


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Errors of PostgreSQL as those of hifi. Their text has names of tables, columns and types, and no values."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise UnreadableValue(error) from None  # its text quotes the value
    except Error as error:
        code = error.sqlstate or ""
        if code.startswith(_DATA):
            raise UnreadableValue(error) from None
        if code.startswith(_WRONG):
            raise Misconfigured(
                f"the rows cannot be read: {error.diag.message_primary} ({code}). Correct the pipe or the database"
            ) from error
        raise Retryable(f"PostgreSQL: {type(error).__name__} ({code or 'connection lost'})") from error
