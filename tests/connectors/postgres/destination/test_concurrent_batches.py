"""Batches of one writer at the same time, on connections that answer as PostgreSQL does."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from hifi.delivery.kind import OutboundEvent, WriterContext
from hifi.runtime.errors import Missing
from hifi_postgres.declaration import PostgresSettings
from hifi_postgres.destination.column_type import READ_TYPES
from hifi_postgres.destination.writer import PostgresWriter

TYPES = {
    "k": ("text", "S"),
    "hifi_log": ("uuid", "U"),
    "hifi_partition": ("int4", "N"),
    "hifi_offset": ("int8", "N"),
    "hifi_accepted": ("timestamptz", "D"),
}


class AnsweringCursor:
    """The answer to a statement."""

    def __init__(self, rows: Sequence[Sequence[str]]) -> None:
        self.rowcount = 1
        self._rows = rows

    async def fetchall(self) -> Sequence[Sequence[str]]:
        return self._rows


class AnsweringConnection:
    """A connection to a database with one table."""

    connection = None
    """Of libpq."""

    def __init__(self, names: Sequence[str]) -> None:
        """`names`: columns of the table."""
        self._rows = [(name, TYPES[name][0], TYPES[name][0], *TYPES[name]) for name in names]
        self.inserts = list[bytes]()

    async def execute(self, statement: Any, _parameters: Any = None) -> AnsweringCursor:
        if isinstance(statement, bytes) and statement.startswith(b"INSERT"):
            self.inserts.append(statement)
        return AnsweringCursor(self._rows if statement is READ_TYPES else [])

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield

    async def commit(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def rollback(self) -> None:
        pass


async def test_a_batch_is_written_with_the_types_of_its_rows_while_another_one_forgets_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("URL", "postgresql://u@127.0.0.1:1/d")
    settings = PostgresSettings.model_validate(
        {"url": {"env": "URL"}, "table": "t", "columns": {"k": "k"}, "key": ["k"]}
    )
    writer = PostgresWriter(settings, WriterContext("s", "p", "d", 1, 10))
    whole: Any = AnsweringConnection([*TYPES])
    altered: Any = AnsweringConnection([name for name in TYPES if name != "k"])
    begin = writer._begin_transaction

    async def meet_an_altered_table(*args: Any) -> None:
        """What another batch does, while this one waits for an answer."""
        with pytest.raises(Missing):
            await writer._read_types(altered)
        await begin(*args)

    monkeypatch.setattr(writer, "_begin_transaction", meet_an_altered_table)
    writer._idle.append(whole)
    await writer.write([OutboundEvent(b'{"k":"1"}', "application/json", {}, b"k", "0a" * 16, 0, 1, 1)])
    assert len(whole.inserts) == 1
    assert not writer._table.has_types
