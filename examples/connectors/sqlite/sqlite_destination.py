"""The kind of destinations `sqlite`: one row for each event key, with the data of its newest event."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

from pydantic import Field

from hifi.delivery.kind import DestinationKind, DestinationWriter, OutboundEvent, WriterContext
from hifi.pipe.strict_model import StrictModel
from hifi.runtime.errors import Rejected, Retryable


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
            (key TEXT PRIMARY KEY, data TEXT NOT NULL, position INTEGER NOT NULL)"""
        # A retry may come after a newer event of its key. All events of a key are in one partition, so their offsets
        # say which is newer. The same event again changes nothing.
        self._upsert = f"""
            INSERT INTO {table} (key, data, position) VALUES (?, ?, ?)
            ON CONFLICT (key) DO UPDATE SET data = excluded.data, position = excluded.position
            WHERE excluded.position >= position"""  # noqa: S608 - the settings allow only names

    async def write(self, events: Sequence[OutboundEvent]) -> None:
        """Write a batch."""
        rows = [_row(event) for event in events]
        await asyncio.to_thread(self._write, rows)

    def _write(self, rows: Sequence[tuple[str, str, int]]) -> None:
        try:
            # The inner block commits all rows, or rolls all back if one fails.
            with closing(sqlite3.connect(self._file, timeout=5)) as connection, connection:
                connection.execute(self._create)
                connection.executemany(self._upsert, rows)
        except sqlite3.OperationalError as error:  # locked by another program, disk full
            raise Retryable(f"SQLite: {error}") from error


def _row(event: OutboundEvent) -> tuple[str, str, int]:
    if event.key is None:
        raise Rejected("no-key", "the event has no key, which this table needs")
    event.json()  # what is no JSON is rejected
    return event.key.decode(), event.data.decode(), event.offset


SQLITE = DestinationKind(SqliteSettings, SqliteWriter)
