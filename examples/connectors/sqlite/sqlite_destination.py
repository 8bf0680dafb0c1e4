"""The kind of destinations `sqlite`: one row for each event key, with the data of its newest event."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field

from hifi.delivery.kind import DestinationKind, DestinationWriter, OutboundEvent, WriterContext
from hifi.pipe.strict_model import StrictModel
from hifi.runtime.errors import Rejected, Retryable

_Row: TypeAlias = tuple[str, str, str, int, int]
"""Key, data, and the log, offset and accepted time of the event."""


class SqliteSettings(StrictModel):
    """Settings of a SQLite destination."""

    database: Path
    """File, which is created if it does not exist."""
    table: Annotated[str, Field(pattern="^[a-z_]+$")]
    """Name of the table, which is created if it does not exist."""


class SqliteWriter(DestinationWriter):
    """Writes each batch in one transaction. A row is never replaced by an older event of its key."""

    def __init__(self, settings: SqliteSettings, _: WriterContext) -> None:
        self._file = settings.database
        table = f'"{settings.table}"'
        self._create = f"""
            CREATE TABLE IF NOT EXISTS {table}
            (key TEXT PRIMARY KEY, data TEXT, log TEXT, position INTEGER, accepted INTEGER)"""
        # A retry may come after a newer event of its key. All events of a key are in one partition, so within a log of
        # the stream their offsets say which is newer, and between logs their accepted times. The same event again
        # changes nothing.
        self._upsert = f"""
            INSERT INTO {table} (key, data, log, position, accepted) VALUES (?, ?, ?, ?, ?)
            ON CONFLICT (key) DO UPDATE SET data = excluded.data, log = excluded.log, position = excluded.position,
            accepted = excluded.accepted
            WHERE CASE WHEN log = excluded.log THEN excluded.position >= position
            ELSE excluded.accepted >= accepted END"""  # noqa: S608 - the settings allow only names
        self._superseded = f"SELECT 1 FROM {table} WHERE key = ? AND log <> ? AND accepted > ?"  # noqa: S608 - as above

    async def write(self, events: Sequence[OutboundEvent]) -> None:
        """Write a batch."""
        rows = [_row(event) for event in events]
        await asyncio.to_thread(self._write, rows)

    def _write(self, rows: Sequence[_Row]) -> None:
        try:
            # The inner block commits all rows, or rolls all back if one fails.
            with closing(sqlite3.connect(self._file, timeout=5)) as connection, connection:
                connection.execute(self._create)
                for row in rows:
                    if not connection.execute(self._upsert, row).rowcount:
                        self._require_newest(connection, row)
        except sqlite3.OperationalError as error:  # locked by another program, disk full
            raise Retryable(f"SQLite: {error}") from error

    def _require_newest(self, connection: sqlite3.Connection, row: _Row) -> None:
        key, _, log, _, accepted_us = row
        if connection.execute(self._superseded, [key, log, accepted_us]).fetchone():
            raise Rejected(
                "superseded", "an event of this key that another log accepted later is written already"
            )


def _row(event: OutboundEvent) -> _Row:
    if event.key is None:
        raise Rejected("no-key", "the event has no key, which this table needs")
    event.json()  # what is no JSON is rejected
    return event.key.decode(), event.data.decode(), event.log, event.offset, event.accepted_us


SQLITE = DestinationKind(SqliteSettings, SqliteWriter, several_logs=True)
