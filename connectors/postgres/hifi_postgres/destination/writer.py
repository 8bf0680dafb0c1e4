"""Write batches of events to a PostgreSQL table, one transaction for each."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from psycopg import AsyncConnection, Error, OperationalError, ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from hifi.delivery.kind import DestinationWriter, OutboundEvent, WriterContext
from hifi.pipe.limits import pipe_limits
from hifi.runtime import log
from hifi.runtime.errors import HifiError, Misconfigured, Missing, Rejected, RejectedEvents, Retryable
from hifi_postgres.declaration import PostgresSettings
from hifi_postgres.destination.column_type import READ_TYPES, ColumnType
from hifi_postgres.destination.declared_types import alterations
from hifi_postgres.destination.failures import failure, is_about_row
from hifi_postgres.destination.statements import EventChange, RowChange, TableStatements
from hifi_postgres.judged_address import with_judged_addresses

LOCK_SHARE: Final = 0.8
"""Share of the destination's time-out after which PostgreSQL itself ends a wait for a lock, and so the transaction."""
_SUPERSEDED: Final = Rejected(
    "superseded", "an event of the row's key that another log of the stream accepted later is written already"
)
_OTHER_LENGTH: Final = frozenset({"22001", "22026"})
"""Codes of texts that are too long, and of bits that are too many or too few, which a cast cuts or fills."""
_NO_PRIVILEGE: Final = "42501"

logger = log.get(__name__)

Connection: TypeAlias = AsyncConnection[tuple[Any, ...]]


_OPTIONS: Final = frozenset(
    (
        *("host", "hostaddr", "port", "dbname", "user", "password", "application_name", "client_encoding"),
        *("connect_timeout", "tcp_user_timeout", "keepalives", "keepalives_idle", "keepalives_interval"),
        *("keepalives_count", "options", "target_session_attrs", "load_balance_hosts", "channel_binding"),
        *("require_auth", "gssencmode", "sslmode", "sslnegotiation", "sslsni", "sslcertmode"),
        *("ssl_min_protocol_version", "ssl_max_protocol_version"),
    )
)
"""Options of a URL that have libpq neither read or write a file nor ask another server."""
_URL: Final = re.compile("postgres(?:ql)?://")
_CERTIFICATES: Final = frozenset({"sslrootcert", "sslcert", "sslcrl"})
_KEY: Final = "sslkey"
_AUTHORITIES_OF_THE_SYSTEM: Final = "system"


class PostgresWriter(DestinationWriter):
    """Writes to one table over at most as many connections as batches are written at a time."""

    def __init__(self, settings: PostgresSettings, context: WriterContext) -> None:
        """Read the URL; the first write connects.

        Args:
            settings: of the destination.
            context: of the writer.

        Raises:
            Misconfigured: the URL is missing or not valid, or has an option that is not allowed; the message does not
                quote it.
        """
        try:
            url = settings.url.read()
            url_options = conninfo_to_dict(url)
        except ProgrammingError:
            raise Misconfigured(
                "the secret `url` is not a connection URL; write postgresql://user:password@host:5432/database"
            ) from None
        name = f"hifi {context.pipe}/{context.destination}"[:63]
        self._pipe = context.pipe
        _require_encoded(url, url_options)
        _require_allowed(url_options, context.pipe)
        self._options: dict[str, Any] = {"application_name": name, **url_options, "client_encoding": "UTF8"}
        self._table_name = settings.table
        self._types = settings.types
        self._settings = settings
        self._table = TableStatements(settings)
        """Without types until they are read. Another object replaces it, since other batches may write with it."""
        self._begin, self._begin_values = _beginning(context.timeout_s)
        self._idle: list[Connection] = []

    async def write(self, events: Sequence[OutboundEvent]) -> None:
        """Write a batch in one transaction."""
        changes = self._table.changes(events)
        connection = self._idle.pop() if self._idle else await self._connect()
        committing = False
        try:
            await self._write(connection, changes)
            committing = True
            await connection.commit()
        except Error as error:
            await self._roll_back(connection)
            raise self._failure(error, committing=committing) from error
        except HifiError:
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
            # No prepared statements: behind a pool such as PgBouncer the next transaction may be in another session.
            options = await with_judged_addresses(self._options, self._pipe)
            return await AsyncConnection.connect(make_conninfo("", **options), prepare_threshold=None)
        except OperationalError as error:
            text = str(error).strip().splitlines()[-1]
            raise Retryable(f"PostgreSQL accepts no connection: {text}") from error

    async def _write(self, connection: Connection, changes: Sequence[EventChange]) -> None:
        """Many rows with a statement; where that fails for what the rows or the table are, each row by itself."""
        table, rows = await self._rows(connection, changes)
        try:
            await self._begin_transaction(connection, table, rows)
            await self._apply(connection, table, rows)
        except Error as error:
            if not is_about_row(error):
                raise
            await connection.rollback()
        else:
            return
        table = await self._read_types(connection)  # they may have changed
        await self._write_each(connection, table, table.rows(changes))

    async def _rows(
        self, connection: Connection, changes: Sequence[EventChange]
    ) -> tuple[TableStatements, list[RowChange]]:
        """The rows of a batch by the types of the table as they were read last, and their statements.

        Raises:
            RejectedEvents: some do not fit its types as they are now.
        """
        table = self._table
        if table.has_types:
            try:
                return table, table.rows(changes)
            except RejectedEvents:
                pass  # the types may have changed
        table = await self._read_types(connection)
        return table, table.rows(changes)

    async def _write_each(
        self, connection: Connection, table: TableStatements, rows: Sequence[RowChange]
    ) -> None:
        """Write the rows one by one, to find those that cannot be written.

        Raises:
            RejectedEvents: some cannot; nothing of the batch is written.
            Retryable: the table does not fit, or a row is not there yet.
        """
        rejected: dict[int, Rejected] = {}
        await self._begin_transaction(connection, table, rows)
        for row in rows:
            try:
                async with connection.transaction():
                    await self._apply(connection, table, [row])
            except RejectedEvents as rejection:
                rejected |= rejection.events
            except Error as error:
                if not is_about_row(error):
                    raise
                column = await self._column_at_fault(connection, table, row, error)
                absent_columns = table.absent_columns(row)
                reaction = self._failure(error, absent=absent_columns, column=column)
                if not isinstance(reaction, Rejected):
                    self._table = TableStatements(self._settings)  # types are read again
                    raise reaction from error
                rejected[row.number] = reaction
        if rejected:
            raise RejectedEvents(dict(sorted(rejected.items())))

    async def _apply(self, connection: Connection, table: TableStatements, rows: Sequence[RowChange]) -> None:
        """Write rows.

        Raises:
            RejectedEvents: of some another log wrote the key with an event that was accepted later.
        """
        changed_count = 0
        for execution in table.executions(rows):
            changed_count += (await connection.execute(*execution)).rowcount
        # What changed nothing is done if a later event of its log has replaced it, or deletes what is not there.
        superseded_query = table.superseded(rows) if changed_count < len(rows) else None
        if superseded_query is None:
            return
        cursor = await connection.execute(*superseded_query)
        if numbers := [rows[number - 1].number for (number,) in await cursor.fetchall()]:
            raise RejectedEvents(dict.fromkeys(sorted(numbers), _SUPERSEDED))

    async def _begin_transaction(
        self, connection: Connection, table: TableStatements, rows: Sequence[RowChange]
    ) -> None:
        # Without a pipeline: a server that waits for more of one does not end a transaction whose client is frozen.
        await connection.execute(self._begin, self._begin_values)
        locks = table.locks(rows)
        if locks is not None:
            await connection.execute(*locks)

    async def _read_types(self, connection: Connection) -> TableStatements:
        """The statements by the types that the table has now, for later batches, too.

        Raises:
            Missing: it does not exist, or has no column that the settings name.
        """
        await connection.execute(self._begin, self._begin_values)
        cursor = await connection.execute(READ_TYPES, [self._table.table.as_string(connection)])
        types = {name: ColumnType(*type_values) for name, *type_values in await cursor.fetchall()}
        is_altered = await self._alter(connection, types) if types else False
        await (connection.commit() if is_altered else connection.rollback())
        if is_altered:
            return await self._read_types(connection)
        self._table = table = TableStatements(self._settings)
        table.use_types(types)
        return table

    async def _alter(self, connection: Connection, types: Mapping[str, ColumnType]) -> bool:
        """Make the columns those that the pipe declares; whether any was changed.

        Raises:
            Missing: a column cannot be added or widened.
        """
        is_altered = False
        for name, type_name in alterations(self._table_name, types, self._types):
            action = (
                SQL("ALTER {column} TYPE {type}")
                if name in types
                else SQL("ADD IF NOT EXISTS {column} {type}")
            )
            try:
                await connection.execute(
                    SQL("ALTER TABLE {table} {action}").format(
                        table=self._table.table,
                        action=action.format(column=Identifier(name), type=SQL(type_name)),
                    )
                )
            except Error as error:
                if not is_about_row(error) and error.sqlstate != _NO_PRIVILEGE:
                    raise
                raise Missing(
                    f"column {name} of the table {self._table_name}",
                    f"the column {name} of the table {self._table_name} cannot become {type_name} "
                    f"({type(error).__name__}); deliveries wait: alter the table yourself",
                ) from error
            logger.warning("column-altered", table=self._table_name, column=name, type=type_name)
            is_altered = True
        return is_altered

    async def _column_at_fault(
        self, connection: Connection, table: TableStatements, row: RowChange, error: Error
    ) -> str:
        """The column whose value PostgreSQL refuses, and its type; empty: it is not one value."""
        if (error.sqlstate or "").startswith("42") or error.diag.column_name:
            return ""
        for name, column, text in table.typed_texts(row):
            whole, fitted = (
                SQL(
                    f"(%s::text::{column.cast_to(type_sql)})::text".replace("%", "%%").replace("%%s", "%s", 1)
                )
                for type_sql in (column.written, column.declared)
            )
            try:
                async with connection.transaction():
                    cursor = await connection.execute(
                        SQL("SELECT {} = {}").format(whole, fitted), [text, text]
                    )
                    is_kept = await cursor.fetchone() == (True,)
            except Error as cast_error:
                if cast_error.sqlstate == error.sqlstate:
                    return _at_fault(name, column)
            else:
                if error.sqlstate in _OTHER_LENGTH and not is_kept:
                    return _at_fault(name, column)
        return ""

    def _failure(
        self, error: Error, *, committing: bool = False, absent: Sequence[str] = (), column: str = ""
    ) -> HifiError:
        return failure(error, committing=committing, table=self._table_name, absent=absent, column=column)

    async def _roll_back(self, connection: Connection) -> None:
        try:
            await connection.rollback()
        except Error:
            # The connection is lost. So are those that idled when the server ended: each would fail a write of its own.
            await connection.close()
            await self.close()
            return
        self._idle.append(connection)


def _beginning(timeout_s: float) -> tuple[bytes, list[str]]:
    """The first statement of a transaction: settings that end with it, whatever the role or a pool has.

    PostgreSQL itself ends what takes too long, so that a transaction never outlives the time-out of its write, also if
    the process that began it is frozen.
    """
    settings = {
        "lock_timeout": f"{int(timeout_s * LOCK_SHARE * 1000)}ms",
        "statement_timeout": f"{int(timeout_s * 1000)}ms",
        "idle_in_transaction_session_timeout": f"{int(timeout_s * 1000)}ms",
        "TimeZone": "UTC",
        "DateStyle": "ISO, YMD",
        "IntervalStyle": "postgres",
        "array_nulls": "on",
        "xmloption": "content",
        "quote_all_identifiers": "off",  # the names of types are compared
    }
    calls = [f"set_config('{name}', %s, true)" for name in settings]
    # Else a row would be delivered that the server loses when it is killed; stronger settings stay.
    calls.append(
        "set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)"
    )
    return f"SELECT {', '.join(calls)}".encode(), list(settings.values())


def _at_fault(name: str, column: ColumnType) -> str:
    return f"the value of the column {name} does not fit its type {column.declared}"


def _require_encoded(url: str, options: Mapping[str, Any]) -> None:
    """Refuse hosts, ports and a database that contain a part of a password: later errors would quote it.

    Raises:
        Misconfigured: the password of the URL is not percent-encoded; the message does not quote it.
    """
    hosts = [host for name in ("host", "hostaddr") for host in str(options.get(name) or "").split(",")]
    database = url.partition("?")[0].partition("://")[2].partition("/")[2] if _URL.match(url) else ""
    ports = [port for port in str(options.get("port") or "").split(",") if port]
    if (
        any("@" in host[1:] for host in hosts)  # one at the beginning is that of a socket without a file
        or "@" in database  # `%40` is a part of its name
        or not all(re.fullmatch(r"[0-9]{1,5}", port) for port in ports)
    ):
        raise Misconfigured(
            "the secret `url` has a host, port or database that is none: percent-encode its user and password, such as "
            "%40 for @"
        )


def _require_allowed(options: Mapping[str, Any], pipe: str) -> None:
    """Refuse options of a URL that may name another server or a file, but for certificates and a key of the pipe.

    Raises:
        Misconfigured: an option or a file is not allowed; the message does not quote other values.
    """
    if unlisted_options := sorted(options.keys() - _OPTIONS - _CERTIFICATES - {_KEY}):
        raise Misconfigured(
            f"the secret `url` has the option {', '.join(unlisted_options)}, which is not allowed; allowed are "
            f"{', '.join(sorted(_OPTIONS | _CERTIFICATES | {_KEY}))}"
        )
    limits = pipe_limits()
    for name in sorted(options.keys() & (_CERTIFICATES | {_KEY})):
        file = Path(str(options[name]))
        if name == _KEY:
            is_path = file.is_absolute()
            reason = None if is_path else f"{file} is not allowed as a key: write an absolute path"
            reason = reason or limits.refuse_secret_file(file) or limits.refuse_grant(pipe, None, file)
        elif options[name] == _AUTHORITIES_OF_THE_SYSTEM:
            reason = None
        else:
            reason = limits.refuse_certificates(file, pipe)
        if reason is not None:
            raise Misconfigured(f"the option {name} of the secret `url` is not allowed: {reason}")
