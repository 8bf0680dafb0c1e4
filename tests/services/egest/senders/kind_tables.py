"""The destinations that the contract suite runs on, and what it needs of them."""

import contextlib
import sqlite3
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import orjson
import psycopg


class KindUnderTest(Protocol):
    """A destination of one kind that keeps the `number` of the newest event of each `key`."""

    refusal = "not-json"
    """The reason of the dead letter of an event whose data is not JSON and that has no subject."""

    def declared(self, **more: Any) -> dict[str, Any]:
        """The destination `d` in a pipe."""

    async def rows(self) -> dict[str, int]:
        """The numbers by event key."""

    async def history(self) -> list[tuple[str, int]]:
        """Key and number of what was written, in its order; of a table, its rows."""
        return list((await self.rows()).items())

    def locked(self) -> AbstractAsyncContextManager[None]:
        """Nothing can be written while the block runs."""


class SqliteTable(KindUnderTest):
    """A table that the kind of the example writes."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "events.db"

    def declared(self, **more: Any) -> dict[str, Any]:
        settings = {"database": str(self.file), "table": "events"}
        return {"name": "d", "kind": "sqlite", "settings": settings, **more}

    async def rows(self) -> dict[str, int]:
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            found = connection.execute("SELECT key, data FROM events").fetchall()
        return {key: orjson.loads(data)["number"] for key, data in found}

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        with contextlib.closing(sqlite3.connect(self.file, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            yield
            connection.execute("ROLLBACK")


class PostgresTable(KindUnderTest):
    """A table with the columns `key` and `number` that the kind `postgres` writes."""

    VARIABLE = "TEST_POSTGRES_URL"

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = "t" + uuid.uuid4().hex[:10]
        self.execute(
            f"CREATE TABLE {self.name} (key text PRIMARY KEY, number integer NOT NULL,"
            " hifi_partition integer, hifi_offset bigint)"
        )

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def declared(self, **more: Any) -> dict[str, Any]:
        columns = {"key": "key", "number": "number"}
        settings = {"url": {"env": self.VARIABLE}, "table": self.name, "columns": columns, "key": ["key"]}
        return {"name": "d", "kind": "postgres", "settings": settings | more.pop("settings", {}), **more}

    async def rows(self) -> dict[str, int]:
        return dict(self.execute(f"SELECT key, number FROM {self.name}"))

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        with psycopg.connect(self.url) as connection:
            connection.execute(f"LOCK TABLE {self.name} IN ACCESS EXCLUSIVE MODE")
            yield
            connection.rollback()
