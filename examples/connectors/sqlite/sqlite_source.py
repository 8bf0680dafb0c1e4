"""The kind of sources `sqlite`: each row of a table is an event, in the order of the row ids."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import orjson
from pydantic import Field

from hifi.pipe.sources.collected import CollectedSource
from hifi.pipe.sources.event import SourceEvent, refused
from hifi.pipe.sources.kind import MOST_EVENTS, PolledSource, SourceContext, SourceKind, SourceTurn
from hifi.record.headers import CONTENT_TYPE
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Retryable
from hifi.runtime.units import Seconds

_LARGEST_ROW_ID = 2**63 - 1


class SqliteSource(CollectedSource):
    """Rows of a SQLite table, whose row ids rise: `INTEGER PRIMARY KEY AUTOINCREMENT`."""

    kind: Literal["sqlite"]
    database: Path
    """File."""
    table: Annotated[str, Field(pattern="^[a-z_]+$")]
    """Name of the table."""
    type: str = "sqlite.row"
    """CloudEvents `type`."""
    interval: Seconds = 1
    """Time between looks for new rows."""


class SqliteRows(PolledSource):
    """Reads one table. The position of a row is its row id, so a row that is read again is dropped as a copy."""

    def __init__(self, source: SqliteSource, context: SourceContext) -> None:
        self._source = source
        self._max_bytes = context.max_event_bytes
        self.name = f"sqlite{quote(str(source.database))}/{source.table}"

    async def read(self, turn: SourceTurn) -> None:
        """Read until the turn is over."""
        done: int = turn.entries.get("done", 0)
        # A batch is written down before it is written to `raw`: the reader after a crash writes the same rows again,
        # with the same accepted time.
        batch: dict[str, int] | None = turn.entries.get("batch")
        while not turn.over():
            through = _LARGEST_ROW_ID if batch is None else batch["through"]
            rows = await asyncio.to_thread(self._rows, done, through)
            turn.works()
            if batch is None:
                if not rows:
                    await turn.pause(self._source.interval)
                    continue
                batch = {"through": rows[-1][0], "accepted_us": now_us()}
                await turn.keep({"batch": batch})
            if rows:
                await turn.write(self.name, [self._event(*row) for row in rows], batch["accepted_us"])
            done, batch = batch["through"], None
            await turn.keep({"done": done, "batch": batch})

    def _rows(self, after: int, through: int) -> list[tuple[int, dict[str, Any]]]:
        query = f"""
            SELECT rowid AS "#", * FROM "{self._source.table}"
            WHERE rowid > ? AND rowid <= ? ORDER BY rowid LIMIT ?"""  # noqa: S608 - the declaration allows only names
        try:
            with closing(sqlite3.connect(f"file:{self._source.database}?mode=ro", uri=True)) as connection:
                connection.row_factory = sqlite3.Row
                rows = [dict(row) for row in connection.execute(query, [after, through, MOST_EVENTS])]
        except sqlite3.OperationalError as error:  # locked by another program, no such table
            raise Retryable(f"SQLite: {error}") from error
        return [(row.pop("#"), row) for row in rows]

    def _event(self, row_id: int, row: dict[str, Any]) -> SourceEvent:
        data = orjson.dumps(row, default=bytes.hex)
        headers = [
            ("ce_specversion", b"1.0"),
            ("ce_source", self.name.encode()),
            ("ce_id", b"%d" % row_id),
            ("ce_type", self._source.type.encode()),
            (CONTENT_TYPE, b"application/json"),
        ]
        event = SourceEvent(row_id, b"%d" % row_id, data, headers, None)
        if len(data) > self._max_bytes:
            event.data = None
            return refused(event, "too-large", f"the row has {len(data)} bytes as JSON")
        return event


SQLITE = SourceKind(SqliteSource, SqliteRows)
