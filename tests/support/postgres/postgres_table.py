"""A table that the kind `postgres` writes."""

import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import psycopg
from tests.support.connectors.kind_under_test import KindUnderTest


class PostgresTable(KindUnderTest):
    """A table with the columns `key` and `number` that the kind `postgres` writes."""

    VARIABLE = "TEST_POSTGRES_URL"

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = "t" + uuid.uuid4().hex[:10]
        self.execute(
            f"CREATE TABLE {self.name} (key text PRIMARY KEY, number integer NOT NULL,"
            " hifi_log uuid, hifi_partition integer, hifi_offset bigint, hifi_accepted timestamptz)"
        )

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def declared(self, **overrides: Any) -> dict[str, Any]:
        columns = {"key": "key", "number": "number"}
        settings = {"url": {"env": self.VARIABLE}, "table": self.name, "columns": columns, "key": ["key"]}
        return {
            "name": "d",
            "kind": "postgres",
            "settings": settings | overrides.pop("settings", {}),
            **overrides,
        }

    async def rows(self) -> dict[str, int]:
        return dict(self.execute(f"SELECT key, number FROM {self.name}"))

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        with psycopg.connect(self.url) as connection:
            connection.execute(f"LOCK TABLE {self.name} IN ACCESS EXCLUSIVE MODE")
            yield
            connection.rollback()
