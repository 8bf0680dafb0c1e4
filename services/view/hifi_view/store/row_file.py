"""The SQLite file of a view: rows, offsets and accounts, changed together. Used by one thread at a time.

The file is a cache: whatever is wrong with it, it is made anew from Kafka.
"""

import hashlib
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from hifi.pipe.view import View, ViewType
from hifi_view.store.events import EventPosition, Key
from hifi_view.store.plan import Account, BatchPlan, PartitionRead, RefusedEvent, keys_of, plan

_FORMAT: Final = 1
RANGE_OFFSETS: Final = 10_000
"""Offsets of a range with an account of its own."""
RANGES: Final = 200
"""Ranges of a partition; the oldest ones are joined."""
REFUSALS: Final = 1_000
"""Refused events that are listed; all are counted."""
_EXPIRED_AT_ONCE: Final = 5_000
_TYPES: Final = {
    ViewType.TEXT: "TEXT",
    ViewType.INT: "INTEGER",
    ViewType.DOUBLE: "REAL",
    ViewType.BOOL: "INTEGER",
}
_POSITION: Final = ("hifi_time_us", "hifi_partition", "hifi_offset", "hifi_index")
OWN_COLUMNS: Final = (*_POSITION, "hifi_accepted_us", "hifi_change")
"""After those of the view: where the row's event stands, when it was accepted, and the number of the row's change."""
_COUNTS: Final = tuple(part.name for part in fields(Account))

Connect = Callable[..., sqlite3.Connection]


class Logs(NamedTuple):
    """The identities of the topics whose offsets the file has: of another log they mean nothing."""

    raw: str
    read: str


class AccountedRange(NamedTuple):
    """The account of offsets `first` up to, not including, `next_offset` of a partition."""

    partition: int
    first: int
    next_offset: int
    account: Account


class RowFile:
    """The file, opened for writing."""

    def __init__(self, path: Path, view: View, logs: Logs, connect: Connect = sqlite3.connect) -> None:
        """Open the file, or a new one in place of one that is damaged, of another declaration or of another log.

        Args:
            path: of the file.
            view: that it keeps.
            logs: that its offsets belong to.
            connect: opens SQLite.

        Raises:
            sqlite3.Error, OSError: the folder cannot be written, or the disk is full.
        """
        self.path = path
        self.made_because = ""
        """Why the file was made anew; empty: it was kept."""
        self._view = view
        self._connect = connect
        self._identity = orjson.dumps([_FORMAT, declaration_digest(view), *logs]).decode()
        self._table = quoted(view.table)
        key = ", ".join(map(quoted, view.key))
        columns = [*view.columns, *OWN_COLUMNS]
        self._replace = (
            f"INSERT OR REPLACE INTO {self._table} ({', '.join(map(quoted, columns))}) "  # noqa: S608 - names are checked by View
            f"VALUES ({', '.join('?' * len(columns))})"
        )
        places = ", ".join("?" * len(view.key))
        self._shown = f"SELECT {', '.join(_POSITION)} FROM {self._table} WHERE ({key}) = ({places})"  # noqa: S608 - as above
        self._database = self._opened()
        self.inode = path.stat().st_ino
        meta = dict(self._database.execute("SELECT name, value FROM hifi_meta"))
        self.build: str = meta["build"]
        """Name of this file, in which changes are numbered."""
        self.change = int(meta["change"])
        """Number of the last change. It is kept beside the rows, of which the newest one may have expired."""
        counted = self._database.execute(f"SELECT count(*) FROM {self._table}")  # noqa: S608 - as above
        self.rows: int = counted.fetchone()[0]
        """Number of rows."""

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def positions(self) -> dict[int, int]:
        """Partition to the offset that is read next."""
        return dict(self._database.execute("SELECT partition, next FROM hifi_offsets"))

    def apply(self, batch: Iterable[PartitionRead], expired_before_us: int) -> BatchPlan:
        """Apply what was read, all of it or nothing.

        Args:
            batch: each part begins where its partition's position is, or behind it.
            expired_before_us: as of `plan`.

        Raises:
            sqlite3.Error: nothing was applied.
        """
        parts = list(batch)
        database = self._database
        shown = self._positions_of(keys_of(parts))
        planned = plan(parts, shown, expired_before_us)
        change = self.change
        database.execute("BEGIN IMMEDIATE")
        try:
            rows = []
            for event in planned.rows.values():
                change += 1
                rows.append((*event.values, *event.position, event.accepted_us, change))
            database.executemany(self._replace, rows)
            database.execute("UPDATE hifi_meta SET value = ? WHERE name = 'change'", (str(change),))
            for part, account in planned.accounts:
                database.execute(
                    "INSERT OR REPLACE INTO hifi_offsets VALUES (?, ?)", (part.partition, part.next_offset)
                )
                self._account(part, account)
            if planned.refused:
                database.executemany(
                    "INSERT INTO hifi_refusals (partition, offset, event, reason) VALUES (?, ?, ?, ?)",
                    planned.refused,
                )
                database.execute(
                    "DELETE FROM hifi_refusals WHERE id <= (SELECT max(id) FROM hifi_refusals) - ?",
                    (REFUSALS,),
                )
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        self.change = change
        self.rows += len(planned.rows.keys() - shown.keys())
        return planned

    def expire(self, before_us: int) -> int:
        """Remove rows whose event was accepted before a time, some thousands at once; returns how many."""
        key = ", ".join(map(quoted, self._view.key))
        removed = self._database.execute(
            f"DELETE FROM {self._table} WHERE ({key}) IN (SELECT {key} FROM {self._table} "  # noqa: S608 - as above
            "WHERE hifi_accepted_us < ? LIMIT ?)",
            (before_us, _EXPIRED_AT_ONCE),
        ).rowcount
        self.rows -= removed
        return removed

    def used_bytes(self) -> int:
        """Size of what the file holds, without free pages and the journal."""
        pragma = self._database.execute
        pages = pragma("PRAGMA page_count").fetchone()[0] - pragma("PRAGMA freelist_count").fetchone()[0]
        return int(pages) * int(pragma("PRAGMA page_size").fetchone()[0])

    def _positions_of(self, keys: Iterable[Key]) -> Mapping[Key, EventPosition]:
        shown = {}
        for key in keys:
            row = self._database.execute(self._shown, key).fetchone()
            if row is not None:
                shown[key] = EventPosition(*row)
        return shown

    def _account(self, part: PartitionRead, account: Account) -> None:
        """Add to the newest range of the partition, or begin another one."""
        database = self._database
        row = database.execute(
            "SELECT first, next FROM hifi_ranges WHERE partition = ? ORDER BY first DESC LIMIT 1",
            (part.partition,),
        ).fetchone()
        if row is None or row[1] != part.first or row[1] - row[0] >= RANGE_OFFSETS:
            database.execute(
                f"INSERT INTO hifi_ranges VALUES ({', '.join('?' * (3 + len(_COUNTS)))})",  # noqa: S608 - only places
                (part.partition, part.first, part.next_offset, *astuple(account)),
            )
            self._join_oldest(part.partition)
            return
        added = ", ".join(f"{name} = {name} + ?" for name in _COUNTS)
        database.execute(
            f"UPDATE hifi_ranges SET next = ?, {added} WHERE partition = ? AND first = ?",  # noqa: S608 - names of Account
            (part.next_offset, *astuple(account), part.partition, row[0]),
        )

    def _join_oldest(self, partition: int) -> None:
        oldest = self._database.execute(
            "SELECT * FROM hifi_ranges WHERE partition = ? ORDER BY first LIMIT ?", (partition, RANGES + 1)
        ).fetchall()
        if len(oldest) <= RANGES:
            return
        first, second = oldest[:2]
        counts = [older + newer for older, newer in zip(first[3:], second[3:], strict=True)]
        self._database.execute(
            "DELETE FROM hifi_ranges WHERE partition = ? AND first = ?", (partition, second[1])
        )
        self._database.execute(
            f"INSERT OR REPLACE INTO hifi_ranges VALUES ({', '.join('?' * len(first))})",  # noqa: S608 - only places
            (partition, first[1], second[2], *counts),
        )

    def _opened(self) -> sqlite3.Connection:
        if self.path.exists():
            reason = "it is damaged"
            try:
                database = self._connection()
                try:
                    if self._is_sound(database):
                        kept = database.execute(
                            "SELECT value FROM hifi_meta WHERE name = 'identity'"
                        ).fetchone()
                        if kept is not None and kept[0] == self._identity:
                            return database
                        reason = "the view or the stream's topics are other ones"
                except BaseException:
                    database.close()
                    raise
                database.close()
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    raise
            self.made_because = reason
        else:
            self.made_because = "there was none"
        remove(self.path)
        return self._made()

    @staticmethod
    def _is_sound(database: sqlite3.Connection) -> bool:
        return database.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok" and (  # type: ignore[no-any-return]
            database.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'hifi_meta'").fetchone()[0] == 1
        )

    def _made(self) -> sqlite3.Connection:
        view = self._view
        database = self._connection()
        columns = [
            f"{quoted(name)} {_TYPES[kind]}{' NOT NULL' if name in view.key else ''}"
            for name, kind in view.columns.items()
        ]
        event_columns = [f"{name} INTEGER NOT NULL" for name in OWN_COLUMNS]
        key = ", ".join(map(quoted, view.key))
        counts = ", ".join(f"{name} INTEGER NOT NULL" for name in _COUNTS)
        ranges = f"partition INTEGER, first INTEGER, next INTEGER NOT NULL, {counts}"
        refused = (
            "partition INTEGER NOT NULL, offset INTEGER NOT NULL, event TEXT NOT NULL, reason TEXT NOT NULL"
        )
        database.execute("BEGIN IMMEDIATE")
        for statement in (
            f"CREATE TABLE {self._table} ({', '.join([*columns, *event_columns])}, PRIMARY KEY ({key})) WITHOUT ROWID",
            f"CREATE INDEX hifi_by_change ON {self._table} (hifi_change)",
            f"CREATE INDEX hifi_by_age ON {self._table} (hifi_accepted_us)",
            "CREATE TABLE hifi_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
            "CREATE TABLE hifi_offsets (partition INTEGER PRIMARY KEY, next INTEGER NOT NULL)",
            f"CREATE TABLE hifi_ranges ({ranges}, PRIMARY KEY (partition, first))",
            f"CREATE TABLE hifi_refusals (id INTEGER PRIMARY KEY AUTOINCREMENT, {refused})",
        ):
            database.execute(statement)
        database.execute("INSERT INTO hifi_meta VALUES ('identity', ?)", (self._identity,))
        database.execute("INSERT INTO hifi_meta VALUES ('build', ?)", (uuid.uuid4().hex[:12],))
        database.execute("INSERT INTO hifi_meta VALUES ('change', '0')")
        database.execute("COMMIT")
        return database

    def _connection(self) -> sqlite3.Connection:
        database = self._connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            # A power cut may take the last transactions, rows and offsets together: they are read again.
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("PRAGMA journal_size_limit = 67108864")
        except BaseException:
            database.close()
            raise
        return database


def accounts(database: sqlite3.Connection) -> list[AccountedRange]:
    """The account of each range, by partition and offset; `database` may be read-only."""
    rows = database.execute("SELECT * FROM hifi_ranges ORDER BY partition, first")
    return [AccountedRange(row[0], row[1], row[2], Account(*row[3:])) for row in rows]


def refusals(database: sqlite3.Connection, most: int) -> list[RefusedEvent]:
    """The last events that were refused, newest first; `database` may be read-only."""
    rows = database.execute(
        "SELECT partition, offset, event, reason FROM hifi_refusals ORDER BY id DESC LIMIT ?", (most,)
    )
    return [RefusedEvent(*row) for row in rows]


def declaration_digest(view: View) -> str:
    """A name of everything that decides the rows."""
    declared: Any = [
        view.from_.pipe,
        view.from_.at,
        view.table,
        view.key,
        view.columns,
        view.order,
        view.keep,
    ]
    return hashlib.sha256(orjson.dumps(declared)).hexdigest()[:32]


def quoted(name: str) -> str:
    """A name in SQL. Names of views and fields have no quotation marks."""
    return f'"{name}"'


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error means that the file is damaged, not that it cannot be written now."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def remove(path: Path) -> None:
    """Remove a file with its journal."""
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
