"""Write batches of events to a PostgreSQL table, one transaction for each."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from psycopg import AsyncConnection, Error, OperationalError, ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from hifi.delivery.kind import DestinationWriter, OutboundEvent, WriterContext
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_postgres.declaration import PostgresSettings
from hifi_postgres.destination.failures import by_row_instead, failure
from hifi_postgres.destination.statements import RowChange, TableStatements
from hifi_postgres.judged_address import with_judged_addresses

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
        self._options: dict[str, Any] = {"application_name": name, **given}
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
            connection = await AsyncConnection.connect(
                make_conninfo("", **await with_judged_addresses(self._options))
            )
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
        async with connection.pipeline(), connection.cursor() as cursor:
            for statement, parameters in self._table.executions(operations, types):
                await cursor.executemany(statement, parameters)

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
