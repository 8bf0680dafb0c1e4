"""Random tables, and random transactions that change them."""

import base64
import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
from psycopg.sql import SQL, Identifier
from tests.equivalence.columns import KINDS, ColumnKind

_WRITERS = 3
_NULLS = 0.15
_LONGS = 0.3
_LONG_KEY = 1_650
"""Bytes; an index has no longer ones."""
_POSITION = ["hifi_log uuid", "hifi_partition integer", "hifi_offset bigint", "hifi_accepted timestamptz"]


class Column(NamedTuple):
    """A column."""

    name: str
    kind: ColumnKind


class Table:
    """A table with a random key and random columns; a third of the tables have every type."""

    def __init__(self, name: str, rng: random.Random, *, full: bool = False) -> None:
        self.name = name
        self.full = rng.random() < 0.5 or full
        keys = [kind for kind in KINDS if kind.is_key]
        self.key = [Column(f"k{number}", rng.choice(keys)) for number in range(rng.choice([1, 1, 2]))]
        # Without FULL a null of some types is refused, as test_columns.py shows.
        fitting = [kind for kind in KINDS if self.full or not kind.ambiguous]
        kinds = fitting if rng.random() < 0.34 else rng.sample(fitting, rng.randint(4, 15))
        self.columns = [Column(f"c{number}", kind) for number, kind in enumerate(kinds)]
        self.long_key = (
            "text" in {column.kind.sql for column in self.key} and random.Random(name).random() < 0.5
        )
        """Whether a text of the key is so long that it is stored apart from its row."""
        if rng.random() < 0.7:
            long_kinds = [kind for kind in KINDS if kind.long]
            self.columns += [
                Column(f"long{number}", rng.choice(long_kinds)) for number in range(rng.randint(1, 3))
            ]

    def create(self, *, source: bool) -> str:
        """SQL that makes the table of the source or of the destination."""
        columns = [f"{column.name} {column.kind.sql}" for column in (*self.key, *self.columns)]
        if not source:
            columns += [*_POSITION, "hifi_unchanged jsonb"]
        key = ", ".join(column.name for column in self.key)
        statements = [f"CREATE TABLE {self.name} ({', '.join(columns)}, PRIMARY KEY ({key}))"]
        if source:
            if self.full:
                statements.append(f"ALTER TABLE {self.name} REPLICA IDENTITY FULL")
            statements += [
                f"ALTER TABLE {self.name} ALTER {column.name} SET STORAGE EXTERNAL"
                for column in self.columns
                if column.kind.long
            ]
        else:
            statements.append(f"CREATE TABLE {self.name}_gone (key text PRIMARY KEY, {', '.join(_POSITION)})")
        return "; ".join(statements)

    def value(self, column: Column, rng: random.Random) -> str | None:
        """A random value of a column that is not in the key."""
        if rng.random() < _NULLS:
            return None
        if column.kind.long and column.name.startswith("long") and rng.random() < _LONGS * 2:
            return column.kind.long(rng)
        return column.kind.value(rng)


class TableWriter:
    """Changes tables at random over one connection, with keys of its own: it never waits for another writer."""

    def __init__(self, number: int, url: str, tables: list[Table], rng: random.Random, *, first: int) -> None:
        self._number = number
        self._tables = tables
        self._rng = rng
        self._rows = {table.name: _every_nth_key(url, table, number) for table in tables}
        self._used: dict[str, set[tuple[str, ...]]] = {table.name: set() for table in tables}
        self._connection = psycopg.connect(url, autocommit=False)
        self._connection.execute("SET TimeZone = 'UTC'")
        self.count = first

    def transaction(self, max_changes: int) -> Iterator[int]:
        """One transaction: yields after each statement, so that others interleave; the number of changes kept."""
        rows_at_begin = {name: list(rows) for name, rows in self._rows.items()}
        change_count = 0
        for _ in range(self._rng.randint(1, max_changes)):
            if self._rng.random() < 0.1:
                rows_before = {name: list(rows) for name, rows in self._rows.items()}
                self._connection.execute("SAVEPOINT s")
                for _ in range(3):
                    self._change()
                self._connection.execute("ROLLBACK TO SAVEPOINT s")
                self._rows = rows_before
            change_count += self._change()
            yield 0
        if self._rng.random() < 0.1:
            self._connection.rollback()
            self._rows = rows_at_begin
            change_count = 0
        else:
            self._connection.commit()
        yield change_count

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _change(self) -> int:
        table = self._rng.choice(self._tables)
        rows = self._rows[table.name]
        kind = self._rng.choices(["insert", "update", "delete", "key"], [0.3, 0.5, 0.12, 0.08])[0]
        if kind == "insert" or not rows:
            return self._insert(table)
        index = self._rng.randrange(len(rows))
        if kind == "delete":
            self._execute(table, SQL("DELETE FROM {table} WHERE {where}"), rows.pop(index))
            return 1
        columns = table.columns
        changed_columns = self._rng.sample(columns, self._rng.randint(1, len(columns)))
        if kind == "update":
            self._update(table, changed_columns, rows[index], ())
            return 1
        # Without FULL an insert that a changed key makes lacks its long values, as the page says: they change, too.
        key = self._key(table)
        if not table.full:
            changed_columns = [column for column in columns if column in changed_columns or column.kind.long]
        self._update(table, changed_columns, rows[index], key)
        rows[index] = key
        return 2

    def _key(self, table: Table) -> tuple[str, ...]:
        """A new key, which no other writer uses."""
        while True:
            self.count += 1
            key = tuple(self._key_value(table, column_index) for column_index in range(len(table.key)))
            if key not in self._used[table.name]:
                self._used[table.name].add(key)
                return key

    def _key_value(self, table: Table, column_index: int) -> str:
        number, column = self.count * _WRITERS + self._number, table.key[column_index]
        suffix = ""
        if table.long_key and column == next(text for text in table.key if text.kind.sql == "text"):
            suffix = base64.b64encode(random.Random(number).randbytes(_LONG_KEY)).decode()
        kinds = {
            "uuid": f"00000000-0000-4000-8000-{number:012}",
            "bytea": f"\\x{number:08x}",
            "timestamp": f"2024-01-{1 + number % 28:02} 00:00:{number // 10**6:02}.{number % 10**6:06}",
            "numeric(20, 4)": f"{number}.1000",
        }
        words = column.kind.sql in ("text", "varchar(40)")
        return f'k"{number} ü{suffix}' if words else kinds.get(column.kind.sql, str(number))

    def _insert(self, table: Table) -> int:
        key = self._key(table)
        columns = [*table.key, *table.columns]
        values = [*key, *(table.value(column, self._rng) for column in table.columns)]
        self._connection.execute(
            SQL("INSERT INTO {} ({}) VALUES ({})").format(
                Identifier(table.name),
                SQL(", ").join(Identifier(column.name) for column in columns),
                SQL(", ").join(SQL("%s::text::" + column.kind.sql) for column in columns),
            ),
            values,
        )
        self._rows[table.name].append(key)
        return 1

    def _update(
        self, table: Table, changed_columns: list[Column], key: tuple[str, ...], new_key: tuple[str, ...]
    ) -> None:
        columns = [*changed_columns, *(table.key if new_key else [])]
        sets = SQL(", ").join(
            SQL("{} = %s::text::" + column.kind.sql).format(Identifier(column.name)) for column in columns
        )
        values = [*(table.value(column, self._rng) for column in changed_columns), *new_key]
        self._execute(table, SQL("UPDATE {table} SET {sets} WHERE {where}"), key, values, sets=sets)

    def _execute(
        self,
        table: Table,
        statement: SQL,
        key: tuple[str, ...],
        values: list[Any] | None = None,
        **placeholders: Any,
    ) -> None:
        condition = SQL(" AND ").join(
            SQL("{} = %s::text::" + column.kind.sql).format(Identifier(column.name)) for column in table.key
        )
        cursor = self._connection.execute(
            statement.format(table=Identifier(table.name), where=condition, **placeholders),
            [*(values or []), *key],
        )
        assert cursor.rowcount == 1


def change_at_random(
    url: str,
    tables: list[Table],
    changes: int,
    rng: random.Random,
    *,
    first: int = 0,
    truncates: int = 0,
    seconds: float = 0,
) -> int:
    """Change the tables over several connections whose transactions interleave.

    A server that is away is waited for.

    Args:
        url: of the database.
        tables: to change.
        changes: how many, at least.
        rng: of all choices.
        first: begin of the numbers from which keys are made.
        truncates: how often a table is truncated.
        seconds: that it takes at least.

    Returns:
        How many changes were committed.
    """
    change_count, begin_s = 0, time.monotonic()
    phase_ends = [changes * (phase + 1) // (truncates + 1) for phase in range(truncates + 1)]
    while phase_ends:
        writers = list[TableWriter]()
        try:
            while phase_ends:
                writers = [TableWriter(number, url, tables, rng, first=first) for number in range(_WRITERS)]
                running = [writer.transaction(12) for writer in writers]
                while change_count < phase_ends[0]:
                    writer_index = rng.randrange(_WRITERS)
                    step_count = next(running[writer_index], None)
                    if step_count is None:
                        running[writer_index] = writers[writer_index].transaction(rng.choice([1, 5, 12, 60]))
                        time.sleep(max(0.0, begin_s + seconds * change_count / changes - time.monotonic()))
                    else:
                        change_count += step_count
                for transaction in running:
                    change_count += sum(transaction)
                if len(phase_ends) > 1:
                    with psycopg.connect(url) as connection:
                        connection.execute(SQL("TRUNCATE {}").format(Identifier(rng.choice(tables).name)))
                phase_ends.pop(0)
                for writer in writers:
                    first = max(first, writer.count)
                    writer.close()
        except psycopg.OperationalError:
            first = max([first, *(writer.count for writer in writers)])
            time.sleep(0.5)
    return change_count


def _every_nth_key(url: str, table: Table, number: int) -> list[tuple[str, ...]]:
    """The keys of the rows that a writer has to itself, as texts."""
    columns = SQL(", ").join(SQL("{}::text").format(Identifier(column.name)) for column in table.key)
    with psycopg.connect(url) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.execute(
            SQL("SELECT {} FROM {} ORDER BY 1").format(columns, Identifier(table.name))
        ).fetchall()
    return rows[number::_WRITERS]


def rows_of(url: str, table: Table) -> dict[tuple[str, ...], dict[str, str | None]]:
    """All rows by their key, as texts."""
    columns = [*table.key, *table.columns]
    with psycopg.connect(url) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        column_list = ", ".join(
            f"{column.name}::jsonb::text" if column.kind.sql == "json" else f"{column.name}::text"
            for column in columns
        )
        rows = connection.execute(f"SELECT {column_list} FROM {table.name}").fetchall()
    column_names = [column.name for column in columns]
    return {row[: len(table.key)]: dict(zip(column_names, row, strict=True)) for row in rows}
