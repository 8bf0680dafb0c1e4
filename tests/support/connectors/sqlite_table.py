"""A table that the kind of the example writes."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
from tests.support.connectors.kind_under_test import KindUnderTest


class SqliteTable(KindUnderTest):
    """A table that the kind of the example writes."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "events.db"

    def declared(self, **overrides: Any) -> dict[str, Any]:
        settings = {"database": str(self.file), "table": "events"}
        return {"name": "d", "kind": "sqlite", "settings": settings, **overrides}

    async def rows(self) -> dict[str, int]:
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            events = connection.execute("SELECT key, data FROM events").fetchall()
        return {key: orjson.loads(data)["number"] for key, data in events}

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        with contextlib.closing(sqlite3.connect(self.file, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            yield
            connection.execute("ROLLBACK")
