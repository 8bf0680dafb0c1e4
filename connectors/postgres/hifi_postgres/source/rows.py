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
from hifi_postgres.source.progress import Place
from hifi_postgres.source.statements import RowStatements, relation
from hifi_postgres.source.table_row import TableRow, table_row

_WRONG: Final = ("0A", "25006", "28", "3D", "42")
"""Beginnings of codes that trying again does not change: not supported, writing, authorization, database, names."""
_SETTINGS: Final = (
    "SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO'; SET LOCAL IntervalStyle = 'iso_8601'; "
    "SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex'"
)
"""Values as text must not depend on the settings of the user. Of each transaction: a pool has others between them."""
_FETCH: Final = 64
"""Rows that are fetched at a time while it is not known how large they are."""
_MOST_FETCH_BYTES: Final = 128 * 1024 * 1024
"""Of rows that are fetched at a time, all of them as large as a row may be and the ones before them small."""
_PAGE_BYTES: Final = 4 * 1024 * 1024
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
    following: Place | None
    """The row after them; None: it was not asked for, or there is none now."""


class PostgresRows:
    """The rows of one source, over one connection."""

    def __init__(self, connection: _Connection, statements: RowStatements, max_bytes: int) -> None:
        self._connection = connection
        self._statements = statements
        self._most_fetch = max(_FETCH, _MOST_FETCH_BYTES // max_bytes)

    async def mark(self) -> HighWaterMark:
        """The table now."""
        rows = await self._all(self._statements.mark(), [])
        return HighWaterMark(*rows[0])

    async def page(self, after: Place | None, upper_bound: str, limit: int) -> Page:
        """The rows after one, up to a value; fewer than the limit if they are large.

        Raises:
            Retryable, Misconfigured: they cannot be read.
        """
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
                            return Page(page, row.place)
                        page.append(row)
                        size += len(row.data or b"")
                        largest_bytes = max(largest_bytes, row.size)
                    if len(fetched_rows) < fetch:
                        break
                    fetch = max(_FETCH, min(self._most_fetch, _PAGE_BYTES // largest_bytes))
        return Page(page, None)

    async def named(self, places: Sequence[Place]) -> dict[Place, TableRow]:
        """The rows of these places that still exist."""
        rows = await self._all(*self._statements.named(places))
        return {row.place: row for row in map(table_row, rows)}

    async def estimate(self, after: Place | None, upper_bound: str) -> int:
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
    except Error as error:
        code = error.sqlstate or ""
        if code.startswith(_WRONG):
            raise Misconfigured(
                f"the rows cannot be read: {error.diag.message_primary} ({code}). Correct the pipe or the database"
            ) from error
        raise Retryable(f"PostgreSQL: {type(error).__name__} ({code or 'connection lost'})") from error
