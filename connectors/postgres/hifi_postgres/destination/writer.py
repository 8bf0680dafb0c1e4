"""Write batches of events to a PostgreSQL table, one transaction for each."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from psycopg import AsyncConnection, AsyncCursor, Error, OperationalError, ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import Composed

from hifi.delivery.kind import DestinationWriter, OutboundEvent, WriterContext
from hifi.runtime.errors import Misconfigured, Rejected, Retryable
from hifi_postgres.declaration import PostgresSettings
from hifi_postgres.destination.failures import by_row_instead, failure
from hifi_postgres.destination.statements import RowChange, TableStatements

LOCK_SHARE: Final = 0.8
"""Share of the destination's time-out after which PostgreSQL itself ends a wait for a lock, and so the transaction."""

_TYPES: Final = (
    "SELECT attname, format_type(atttypid, -1) FROM pg_attribute"
    " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
)

Connection: TypeAlias = AsyncConnection[tuple[Any, ...]]


class PostgresWriter(DestinationWriter):
    """Writes to one table over at most as many connections as batches are written at a time."""

    def __init__(self, settings: PostgresSettings, context: WriterContext) -> None:
        """Read the URL; the first write connects.

        Args:
            settings: of the destination.
            context: of the writer.

        Raises:
            Misconfigured: the URL is missing or not valid; the message does not quote it.
        """
        try:
            given = conninfo_to_dict(settings.url.read())
        except ProgrammingError:
            raise Misconfigured(
                "the secret `url` is not a connection URL; write postgresql://user:password@host:5432/database"
            ) from None
        name = f"hifi {context.pipe}/{context.destination}"[:63]
        self._conninfo = make_conninfo("", **({"application_name": name} | given))
        self._timeout_s = context.timeout_s
        self._table = TableStatements(settings)
        self._idle: list[Connection] = []
        self._types: dict[str, str] = {}
        """Of the table's columns; empty: not read."""

    async def write(self, events: Sequence[OutboundEvent]) -> None:
        """Write a batch in one transaction."""
        operations = [self._table.operation(event) for event in events]
        connection = self._idle.pop() if self._idle else await self._connect()
        committing = False
        try:
            await self._execute(connection, operations)
            committing = True
            await connection.commit()
        except Error as error:
            await self._roll_back(connection)
            raise failure(error, committing=committing) from error
        except Rejected:
            await self._roll_back(connection)
            raise
        except BaseException:  # cancelled: what the connection does is not known
            await connection.close()
            raise
        self._idle.append(connection)

    async def close(self) -> None:
        """Close all connections."""
        while self._idle:
            await self._idle.pop().close()

    async def _connect(self) -> Connection:
        try:
            connection = await AsyncConnection.connect(self._conninfo)
        except OperationalError as error:
            text = str(error).strip().splitlines()[-1]
            raise Retryable(f"PostgreSQL accepts no connection: {text}") from error
        try:
            # PostgreSQL itself ends what takes too long: a transaction never outlives the time-out of its write.
            lock_ms, statement_ms = int(self._timeout_s * LOCK_SHARE * 1000), int(self._timeout_s * 1000)
            await connection.execute("SELECT set_config('lock_timeout', %s, false)", [f"{lock_ms}ms"])
            await connection.execute(
                "SELECT set_config('statement_timeout', %s, false)", [f"{statement_ms}ms"]
            )
            await connection.commit()
        except Error as error:
            await connection.close()
            raise failure(error, committing=False) from error
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _execute(self, connection: Connection, operations: Sequence[RowChange]) -> None:
        """Many rows with a statement; a statement for each row where that fails for what the rows or the table are."""
        if len(operations) > 1:
            if not self._types:
                self._types = await self._read_types(connection)
            try:
                await self._execute_all(connection, operations, self._types)
            except Error as error:
                if not by_row_instead(error):
                    raise
                await connection.rollback()
                self._types = {}  # they may have changed
            else:
                return
        await self._execute_all(connection, operations, None)

    async def _execute_all(
        self, connection: Connection, operations: Sequence[RowChange], types: Mapping[str, str] | None
    ) -> None:
        cursors: list[AsyncCursor[tuple[Any, ...]]] = []
        async with connection.pipeline():
            for statement, parameters in self._table.executions(operations, types):
                cursor = connection.cursor()
                cursors.append(cursor)
                await cursor.executemany(statement, parameters)
        if self._table.superseded is not None and sum(cursor.rowcount for cursor in cursors) < len(
            operations
        ):
            await self._require_newest(connection, self._table.superseded, operations)

    async def _require_newest(
        self, connection: Connection, superseded: Composed, operations: Sequence[RowChange]
    ) -> None:
        """Refuse what an event of another log has replaced; what a later one of the same log has replaced is done."""
        async with connection.pipeline():
            cursors = [await connection.execute(superseded, operation.parameters) for operation in operations]
        for cursor in cursors:
            if await cursor.fetchone() == (True,):
                raise Rejected(
                    "superseded",
                    "an event of the row's key that another log of the stream accepted later is written already",
                )

    async def _read_types(self, connection: Connection) -> dict[str, str]:
        cursor = await connection.execute(_TYPES, [self._table.table.as_string(connection)])
        return dict(await cursor.fetchall())

    async def _roll_back(self, connection: Connection) -> None:
        try:
            await connection.rollback()
        except Error:
            await connection.close()
            return
        self._idle.append(connection)
