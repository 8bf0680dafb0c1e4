"""The SQLite file of a view: rows, offsets and accounts, changed together. Used by one thread at a time.

The file is a cache: a file that is damaged or of other topics is made anew from Kafka.
"""

import hashlib
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, fields
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from hifi.pipe.view import View, ViewType
from hifi_view.store.events import EventPosition, Key
from hifi_view.store.plan import Account, BatchPlan, PartitionRead, RefusedEvent, keys_of, plan

_FORMAT: Final = 1
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
RANGE_OFFSETS: Final = 10_000
"""Offsets of a range with an account of its own."""
RANGES: Final = 200
"""Ranges of a partition; the oldest ones are joined."""
REFUSALS: Final = 1_000
"""Refused events that are listed; all are counted."""
_EXPIRED_AT_ONCE: Final = 5_000
_KEYS_AT_ONCE: Final = 64
"""Keys that one statement looks up, in a sixth of the time that one for each key takes."""
_TYPES: Final = {
    ViewType.TEXT: "TEXT",
    ViewType.INT: "INTEGER",
    ViewType.DOUBLE: "REAL",
    ViewType.BOOL: "INTEGER",
}
_POSITION: Final = ("hifi_time_us", "hifi_partition", "hifi_offset", "hifi_index")
OWN_COLUMNS: Final = (*_POSITION, "hifi_accepted_us", "hifi_change")
"""After those of the view: position of the row's event, its accepted time, and the number of the row's change."""
_COUNTS: Final = tuple(part.name for part in fields(Account))

Connect = Callable[..., sqlite3.Connection]


class Logs(NamedTuple):
    """The identities of the topics whose offsets the file has; offsets of another log are unrelated."""

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
        """The reason why the file was made anew; empty: it was kept."""
        self._view = view
        self._connect = connect
        self._identity = orjson.dumps([_FORMAT, declaration_digest(view), *logs]).decode()
        self._table = quoted(view.table)
        key = ", ".join(map(quoted, view.key))
        columns = [*view.columns, *OWN_COLUMNS]
        self._replace_row = (
            f"INSERT OR REPLACE INTO {self._table} ({', '.join(map(quoted, columns))}) "  # noqa: S608 - names are checked by View
            f"VALUES ({', '.join('?' * len(columns))})"
        )
        key_values = f"({', '.join('?' * len(view.key))})"
        # CROSS JOIN: SQLite looks each key up, and does not read the whole table.
        self._select_positions = (
            f"WITH hifi_keys ({key}) AS (VALUES {', '.join([key_values] * _KEYS_AT_ONCE)}) "  # noqa: S608 - as above
            f"SELECT {key}, {', '.join(_POSITION)} FROM hifi_keys CROSS JOIN {self._table} USING ({key})"
        )
        self._database = self._open()
        self.inode = path.stat().st_ino
        metadata = dict(self._database.execute("SELECT name, value FROM hifi_meta"))
        host = f"{_boot_id()} {self.inode}"
        self.build: str = metadata["build"] if metadata.get("host") == host else self._begin_build(host)
        """Name under which changes are numbered; another one after a power cut, or if the file was restored: the last
        changes may be missing, and their numbers are given again."""
        self.change = int(metadata["change"])
        """Number of the last change. It is kept beside the rows, of which the newest one may have expired."""
        self.expired_before_us = int(metadata.get("expired_before", 0))
        """Rows that were accepted before this time, microseconds since 1970 UTC, may be missing: they have expired."""
        count_cursor = self._database.execute(f"SELECT count(*) FROM {self._table}")  # noqa: S608 - as above
        self.rows: int = count_cursor.fetchone()[0]
        """Number of rows."""

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def positions(self) -> dict[int, int]:
        """Partition to the offset that is read next."""
        return dict(self._database.execute("SELECT partition, next FROM hifi_offsets"))

    def apply(self, batch: Iterable[PartitionRead], expired_before_us: int) -> BatchPlan:
        """Apply the records of a batch, all or none.

        Args:
            batch: the records of each partition begin at its position, or behind it.
            expired_before_us: as of `plan`.

        Raises:
            sqlite3.Error: nothing was applied.
        """
        partition_reads = list(batch)
        database = self._database
        shown_positions = self._positions_of(list(keys_of(partition_reads)))
        batch_plan = plan(partition_reads, shown_positions, expired_before_us)
        change_number = self.change
        has_expired = any(account.expired for _, account in batch_plan.accounts)
        with transaction(database):
            rows = []
            for event in batch_plan.rows.values():
                change_number += 1
                rows.append((*event.values, *event.position, event.accepted_us, change_number))
            database.executemany(self._replace_row, rows)
            database.execute("UPDATE hifi_meta SET value = ? WHERE name = 'change'", (str(change_number),))
            for partition_read, account in batch_plan.accounts:
                database.execute(
                    "INSERT OR REPLACE INTO hifi_offsets VALUES (?, ?)",
                    (partition_read.partition, partition_read.next_offset),
                )
                self._add_account(partition_read, account)
            if batch_plan.refused:
                database.executemany(
                    "INSERT INTO hifi_refusals (partition, offset, event, reason) VALUES (?, ?, ?, ?)",
                    batch_plan.refused,
                )
                database.execute(
                    "DELETE FROM hifi_refusals WHERE id <= (SELECT max(id) FROM hifi_refusals) - ?",
                    (REFUSALS,),
                )
            if has_expired:
                _note_expiry(database, expired_before_us)
        if has_expired:
            self.expired_before_us = max(self.expired_before_us, expired_before_us)
        self.change = change_number
        self.rows += len(batch_plan.rows.keys() - shown_positions.keys())
        return batch_plan

    def expire(self, before_us: int) -> int:
        """Remove rows whose event was accepted before a time, up to 5,000 at once; returns their number."""
        removed_rows = _expire(self._database, self._view, before_us)
        if removed_rows:
            self.expired_before_us = max(self.expired_before_us, before_us)
        self.rows -= removed_rows
        return removed_rows

    def used_bytes(self) -> int:
        """Size of the file in bytes, without free pages and the journal."""
        execute = self._database.execute
        page_count = (
            execute("PRAGMA page_count").fetchone()[0] - execute("PRAGMA freelist_count").fetchone()[0]
        )
        return int(page_count) * int(execute("PRAGMA page_size").fetchone()[0])

    def _positions_of(self, keys: Sequence[Key]) -> Mapping[Key, EventPosition]:
        shown_positions = {}
        key_fields = len(self._view.key)
        for chunk_start in range(0, len(keys), _KEYS_AT_ONCE):
            chunk = keys[chunk_start : chunk_start + _KEYS_AT_ONCE]
            padding = [chunk[-1]] * (_KEYS_AT_ONCE - len(chunk))
            for row in self._database.execute(self._select_positions, list(chain(*chunk, *padding))):
                shown_positions[row[:key_fields]] = EventPosition(*row[key_fields:])
        return shown_positions

    def _add_account(self, partition_read: PartitionRead, account: Account) -> None:
        """Add an account to the newest range of the partition, or begin a new range."""
        database = self._database
        row = database.execute(
            "SELECT first, next FROM hifi_ranges WHERE partition = ? ORDER BY first DESC LIMIT 1",
            (partition_read.partition,),
        ).fetchone()
        if row is None or row[1] != partition_read.first or row[1] - row[0] >= RANGE_OFFSETS:
            database.execute(
                f"INSERT INTO hifi_ranges VALUES ({', '.join('?' * (3 + len(_COUNTS)))})",  # noqa: S608 - only places
                (
                    partition_read.partition,
                    partition_read.first,
                    partition_read.next_offset,
                    *astuple(account),
                ),
            )
            self._join_oldest(partition_read.partition)
            return
        count_updates = ", ".join(f"{name} = {name} + ?" for name in _COUNTS)
        database.execute(
            f"UPDATE hifi_ranges SET next = ?, {count_updates} WHERE partition = ? AND first = ?",  # noqa: S608 - names of Account
            (partition_read.next_offset, *astuple(account), partition_read.partition, row[0]),
        )

    def _join_oldest(self, partition: int) -> None:
        oldest_ranges = self._database.execute(
            "SELECT * FROM hifi_ranges WHERE partition = ? ORDER BY first LIMIT ?", (partition, RANGES + 1)
        ).fetchall()
        if len(oldest_ranges) <= RANGES:
            return
        first_range, second_range = oldest_ranges[:2]
        counts = [
            older_count + newer_count
            for older_count, newer_count in zip(first_range[3:], second_range[3:], strict=True)
        ]
        self._database.execute(
            "DELETE FROM hifi_ranges WHERE partition = ? AND first = ?", (partition, second_range[1])
        )
        self._database.execute(
            f"INSERT OR REPLACE INTO hifi_ranges VALUES ({', '.join('?' * len(first_range))})",  # noqa: S608 - only places
            (partition, first_range[1], second_range[2], *counts),
        )

    def _open(self) -> sqlite3.Connection:
        if self.path.exists():
            reason = "it is damaged"
            try:
                database = self._connection()
                try:
                    if self._is_sound(database):
                        stored_identity = database.execute(
                            "SELECT value FROM hifi_meta WHERE name = 'identity'"
                        ).fetchone()
                        if stored_identity is not None and stored_identity[0] == self._identity:
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
        return self._create()

    def _begin_build(self, host: str) -> str:
        build = uuid.uuid4().hex[:12]
        with transaction(self._database):
            self._database.executemany(
                "INSERT OR REPLACE INTO hifi_meta VALUES (?, ?)", [("build", build), ("host", host)]
            )
        return build

    @staticmethod
    def _is_sound(database: sqlite3.Connection) -> bool:
        return database.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok" and (  # type: ignore[no-any-return]
            database.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'hifi_meta'").fetchone()[0] == 1
        )

    def _create(self) -> sqlite3.Connection:
        view = self._view
        database = self._connection()
        columns = [
            f"{quoted(name)} {_TYPES[kind]}{' NOT NULL' if name in view.key else ''}"
            for name, kind in view.columns.items()
        ]
        event_columns = [f"{name} INTEGER NOT NULL" for name in OWN_COLUMNS]
        table_columns = ", ".join([*columns, *event_columns])
        key = ", ".join(map(quoted, view.key))
        count_columns = ", ".join(f"{name} INTEGER NOT NULL" for name in _COUNTS)
        range_columns = f"partition INTEGER, first INTEGER, next INTEGER NOT NULL, {count_columns}"
        refusal_columns = (
            "partition INTEGER NOT NULL, offset INTEGER NOT NULL, event TEXT NOT NULL, reason TEXT NOT NULL"
        )
        with transaction(database):
            for statement in (
                f"CREATE TABLE {self._table} ({table_columns}, PRIMARY KEY ({key})) WITHOUT ROWID",
                f"CREATE INDEX hifi_by_change ON {self._table} (hifi_change)",
                f"CREATE INDEX hifi_by_age ON {self._table} (hifi_accepted_us)",
                "CREATE TABLE hifi_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
                "CREATE TABLE hifi_offsets (partition INTEGER PRIMARY KEY, next INTEGER NOT NULL)",
                f"CREATE TABLE hifi_ranges ({range_columns}, PRIMARY KEY (partition, first))",
                f"CREATE TABLE hifi_refusals (id INTEGER PRIMARY KEY AUTOINCREMENT, {refusal_columns})",
            ):
                database.execute(statement)
            database.execute("INSERT INTO hifi_meta VALUES ('identity', ?)", (self._identity,))
            database.execute("INSERT INTO hifi_meta VALUES ('change', '0')")
        return database

    def _connection(self) -> sqlite3.Connection:
        database = self._connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            # A power cut may take the last transactions, rows and offsets together: they are read again.
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("PRAGMA journal_size_limit = 67108864")
            # At 32 MB of journal: a page that changes often is copied to the file once for many transactions.
            database.execute("PRAGMA wal_autocheckpoint = 8000")
            database.execute("PRAGMA cache_size = -16000")  # KiB
        except BaseException:
            database.close()
            raise
        return database


def accounts(database: sqlite3.Connection) -> list[AccountedRange]:
    """The account of each range, by partition and offset; `database` may be read-only."""
    rows = database.execute("SELECT * FROM hifi_ranges ORDER BY partition, first")
    return [AccountedRange(row[0], row[1], row[2], Account(*row[3:])) for row in rows]


def refusals(database: sqlite3.Connection, max_events: int) -> list[RefusedEvent]:
    """The last events that were refused, newest first; `database` may be read-only."""
    rows = database.execute(
        "SELECT partition, offset, event, reason FROM hifi_refusals ORDER BY id DESC LIMIT ?", (max_events,)
    )
    return [RefusedEvent(*row) for row in rows]


def expire_file(path: Path, view: View, before_us: int) -> None:
    """Remove rows as `RowFile.expire`, all of them, from a file that is not open for writing."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        while _expire(database, view, before_us):
            pass


def _expire(database: sqlite3.Connection, view: View, before_us: int) -> int:
    table, key = quoted(view.table), ", ".join(map(quoted, view.key))
    with transaction(database):
        removed_rows = database.execute(
            f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} "  # noqa: S608 - names are checked by View
            "WHERE hifi_accepted_us < ? LIMIT ?)",
            (before_us, _EXPIRED_AT_ONCE),
        ).rowcount
        if removed_rows:
            _note_expiry(database, before_us)
    return removed_rows


def _note_expiry(database: sqlite3.Connection, before_us: int) -> None:
    database.execute(
        "INSERT OR REPLACE INTO hifi_meta SELECT 'expired_before', max(?, coalesce(max(CAST(value AS INTEGER)), 0))"
        " FROM hifi_meta WHERE name = 'expired_before'",
        (before_us,),
    )


@contextmanager
def transaction(database: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """All statements of the block, or none; they see the file as it was at one time."""
    database.execute(begin)
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _boot_id() -> str:
    """A name that the host's start gave; a new one each time where the host has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return uuid.uuid4().hex


def is_of(path: Path, view: View) -> bool:
    """Whether a file was made for this declaration.

    Raises:
        sqlite3.Error: it cannot be read, or is damaged.
    """
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        row = database.execute("SELECT value FROM hifi_meta WHERE name = 'identity'").fetchone()
    return row is not None and orjson.loads(row[0])[:2] == [_FORMAT, declaration_digest(view)]


def declaration_digest(view: View) -> str:
    """A digest of the declarations that decide the rows."""
    declaration: Any = [
        view.from_.pipe,
        view.from_.at,
        view.table,
        view.key,
        view.columns,
        view.order,
        view.keep,
    ]
    return hashlib.sha256(orjson.dumps(declaration)).hexdigest()[:32]


def quoted(name: str) -> str:
    """A name in SQL. Names of views and fields have no quotation marks."""
    return f'"{name}"'


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error means that the file is damaged, not that it cannot be written now."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def remove(path: Path) -> None:
    """Remove a file with its journal."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
