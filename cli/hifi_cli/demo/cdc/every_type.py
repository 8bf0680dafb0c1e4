"""A table of the demo with a column of each type that docs/sources.md names, and long values (TOAST)."""

import base64
import hashlib
import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.sql import SQL, Identifier

NAME: Final = "every_type"
_ROWS: Final = 200
_LONG: Final = 9_000
"""Bytes of a value that is stored apart from its row."""


class TypeColumn(NamedTuple):
    """A column.

    Attributes:
        name: of the column.
        sql: type.
        value: makes the text of a value from a number.
    """

    name: str
    sql: str
    value: Callable[[int], str]


def _long(number: int) -> str:
    return base64.b64encode(hashlib.shake_256(str(number).encode()).digest(_LONG)).decode()


def _uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


_KINDS: Final[dict[str, Callable[[int], str]]] = {
    "smallint": lambda number: str(number % 65_536 - 32_768),
    "integer": lambda number: str(number * 7_919 % 2**31),
    "bigint": lambda number: str(2**63 - 1 - number),
    "oid": lambda number: str(2**32 - 1 - number),
    "numeric": lambda number: ("NaN", "Infinity", f"{number}.10", f"12345678901234567890.{number:09}")[
        number % 4
    ],
    "numeric(20,4)": lambda number: f"{number}.1230",
    "real": lambda number: ("NaN", "-Infinity", "0.1")[number % 3],
    "double precision": lambda number: repr(number / 7),
    "money": lambda number: f"{number}.25",
    "boolean": lambda number: "tf"[number % 2],
    "text": lambda number: f"Zoë's {number} \U0001f600\n\"\\",
    "varchar(40)": lambda number: f"v {number}",
    "char(12)": lambda number: f"c {number}",
    "citext": lambda number: f"Ci {number}",
    "xml": lambda number: f"<a>{number}</a>",
    "uuid": _uuid,
    "demo_mood": lambda number: ("sad", "so, so")[number % 2],
    "bytea": lambda number: f"\\x00ff{number:08x}",
    "json": lambda number: f'{{"a": [{number}.10, null]}}',
    "jsonb": lambda number: ('"123"', "18446744073709551616", f'{{"a": {number}}}')[number % 3],
    "hstore": lambda number: f"a=>{number}, b=>NULL",
    "date": lambda number: ("infinity", "0044-03-15 BC", "12024-01-01", "2026-07-01")[number % 4],
    "time": lambda number: f"12:00:00.{number % 10**6:06}",
    "timestamp": lambda number: ("-infinity", f"2026-07-01 12:00:00.{number % 10**6:06}")[number % 2],
    "timestamptz": lambda number: f"2026-07-01 12:00:00.{number % 10**6:06}+05:30",
    "interval": lambda number: f"1 year -{number % 12} mons {number} days 00:00:00.5",
    "bit(1)": lambda number: str(number % 2),
    "bit(12)": lambda number: f"{number % 4096:012b}",
    "int4range": lambda number: f"[{number},{number + 5})",
    "int4multirange": lambda number: f"{{[1,2),[{number + 3},{number + 5})}}",
    "inet": lambda number: f"10.0.0.{number % 256}/8",
    "cidr": lambda number: f"10.{number % 256}.0.0/16",
    "macaddr": lambda number: f"08:00:2b:01:02:{number % 256:02x}",
    "ltree": lambda number: f"a.b{number}",
    "tsvector": lambda number: f"'a':1 'b{number}':2",
    "point": lambda number: f"({number / 7!r},2)",
    "box": lambda number: f"({number},1),(0,0)",
    "pg_lsn": lambda number: f"{number:X}/16B3748",
    "demo_pair": lambda number: f"({number},x)",
    "text[]": lambda number: f'{{a,NULL,"NULL",{number}}}',
    "varchar(40)[]": lambda number: f"{{v{number}}}",
    "integer[]": lambda number: f"{{{number},NULL}}",
    "bigint[]": lambda number: f"{{{2**63 - 1 - number}}}",
    "date[]": lambda number: f"{{2026-07-{1 + number % 28:02}}}",
    "uuid[]": lambda number: f"{{{_uuid(number)}}}",
    "bytea[]": lambda number: f'{{"\\\\x{number:08x}"}}',
    "jsonb[]": lambda number: f'{{"{{\\"a\\": {number}}}"}}',
}
"""Type to the value of a number. Dates before 1582 come with changes only: in a snapshot they are refused."""
_LONG_KINDS: Final[dict[str, Callable[[int], str]]] = {
    "text": _long,
    "bytea": lambda number: "\\x" + _long(number).encode().hex(),
    "jsonb": lambda number: f'{{"a": "{_long(number)}"}}',
    "text[]": lambda number: f"{{{_long(number)}}}",
}
COLUMNS: Final = tuple(
    [TypeColumn(f"c{at}", sql, value) for at, (sql, value) in enumerate(_KINDS.items())]
    + [TypeColumn(f"long{at}", sql, value) for at, (sql, value) in enumerate(_LONG_KINDS.items())]
)
TYPES: Final = """
    CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
    CREATE TYPE demo_mood AS ENUM ('sad', 'so, so');
    CREATE TYPE demo_pair AS (a integer, b text);
"""
_COLUMNS_SQL: Final = ", ".join(f"{column.name} {column.sql}" for column in COLUMNS)
TABLE: Final = f"{TYPES} CREATE TABLE {NAME} (id integer PRIMARY KEY, {_COLUMNS_SQL});" + "".join(
    f"ALTER TABLE {NAME} ALTER {column.name} SET STORAGE EXTERNAL;"
    for column in COLUMNS
    if column.name.startswith("long")
)
TARGET_TABLE: Final = f"""
    {TYPES}
    CREATE TABLE {NAME} (id integer PRIMARY KEY, {_COLUMNS_SQL},
      hifi_log uuid, hifi_partition integer, hifi_offset bigint, hifi_accepted timestamptz, hifi_unchanged jsonb);
    CREATE TABLE {NAME}_deleted (
      key text PRIMARY KEY, hifi_log uuid, hifi_partition integer, hifi_offset bigint, hifi_accepted timestamptz
    );
"""


class TypeRows:
    """Changes the rows of the table, the same way in each run."""

    def __init__(self) -> None:
        self._choose = random.Random(11)  # noqa: S311 - repeatable rows, no secret
        self._next = 0
        self._rows: list[int] = []

    def fill(self, connection: psycopg.Connection[Any]) -> None:
        """Insert the first rows."""
        for _ in range(_ROWS):
            self._insert(connection, snapshot=True)

    def change(self, connection: psycopg.Connection[Any]) -> None:
        """Insert, update or delete a row; once in a while, all of them."""
        kind = self._choose.choices(["insert", "update", "delete", "truncate"], [0.3, 0.5, 0.19, 0.01])[0]
        if kind == "insert" or not self._rows:
            self._insert(connection)
        elif kind == "update":
            columns = self._choose.sample(COLUMNS, 3)
            sets = SQL(", ").join(
                SQL("{} = %s::text::" + column.sql).format(Identifier(column.name)) for column in columns
            )
            number = self._choose.randrange(10**6)
            values = [column.value(number) for column in columns]
            row = self._choose.choice(self._rows)
            connection.execute(
                SQL("UPDATE {} SET {} WHERE id = %s").format(Identifier(NAME), sets), [*values, row]
            )
        elif kind == "delete":
            row = self._rows.pop(self._choose.randrange(len(self._rows)))
            connection.execute(SQL("DELETE FROM {} WHERE id = %s").format(Identifier(NAME)), [row])
        else:
            self._rows.clear()
            connection.execute(SQL("TRUNCATE {}").format(Identifier(NAME)))

    def _insert(self, connection: psycopg.Connection[Any], *, snapshot: bool = False) -> None:
        number = self._next
        self._next += 1
        values = SQL(", ").join(SQL("%s::text::" + column.sql) for column in COLUMNS)
        value_texts = [column.value(3 if snapshot and column.sql == "date" else number) for column in COLUMNS]
        statement = SQL("INSERT INTO {} VALUES (%s, {})").format(Identifier(NAME), values)
        connection.execute(statement, [number, *value_texts])
        self._rows.append(number)


def rows_of(url: str) -> dict[int, tuple[str | None, ...]]:
    """The rows of a database as texts, by id."""
    texts = ", ".join(
        f"{column.name}::jsonb::text" if column.sql == "json" else f"{column.name}::text"
        for column in COLUMNS
    )
    with psycopg.connect(url) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.execute(f"SELECT id, {texts} FROM {NAME}")  # noqa: S608 - names of this module
        return {row[0]: row[1:] for row in rows}
