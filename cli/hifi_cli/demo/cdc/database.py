"""The source database of the demo: two tables, a writer that changes them, and a trigger that logs changes of flights.

The trigger writes its log in the transaction of the change, so the log is what the demo compares arrivals with. It is
not read by hifi.
"""

import random
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from hifi_cli.demo import flights
from hifi_cli.demo.cdc import every_type

COLUMNS: Final = ("id", "carrier", "flight", "tailnum", "origin", "dest", "distance", "delay")
_TABLE: Final = """
    CREATE TABLE flights (
      id text PRIMARY KEY, carrier text, flight integer, tailnum text, origin text, dest text, distance integer,
      delay integer
    )
"""
_LOG: Final = """
    CREATE TABLE change_log (number bigserial PRIMARY KEY, operation text NOT NULL, id text NOT NULL);
    CREATE FUNCTION log_change() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        IF TG_OP = 'INSERT' THEN
          INSERT INTO change_log (operation, id) VALUES ('insert', NEW.id);
        ELSIF TG_OP = 'DELETE' THEN
          INSERT INTO change_log (operation, id) VALUES ('delete', OLD.id);
        ELSIF NEW.id = OLD.id THEN
          INSERT INTO change_log (operation, id) VALUES ('update', NEW.id);
        ELSE
          INSERT INTO change_log (operation, id) VALUES ('delete', OLD.id), ('insert', NEW.id);
        END IF;
        RETURN NULL;
      END
    $$;
    CREATE TRIGGER log_change AFTER INSERT OR UPDATE OR DELETE ON flights
      FOR EACH ROW EXECUTE FUNCTION log_change();
"""
_INSERT: Final = "INSERT INTO flights VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
_SELECT: Final = "SELECT id, carrier, flight, tailnum, origin, dest, distance, delay FROM flights"
_SHARES: Final = {"insert": 0.3, "update": 0.45, "delete": 0.15, "key": 0.1}
_LARGEST_TRANSACTION: Final = 5
_RETRY_S: Final = 0.5
_AWAY_S: Final = 240.0
"""Longest time that the server may be away, seconds."""


def prepare(url: str, rows: int, type_rows: every_type.TypeRows) -> None:
    """Create the table with a number of flights, that of every type, and the log of the changes that follow."""
    with psycopg.connect(url) as connection:
        connection.execute(_TABLE)
        with connection.cursor() as cursor:
            cursor.executemany(_INSERT, [_values(name, row) for name, row in flights.rows(rows)])
        connection.execute(every_type.TABLE)
        type_rows.fill(connection)
        connection.execute(_LOG)


def rows_of(url: str) -> dict[str, dict[str, Any]]:
    """The columns of the flights in a database, by id."""
    with psycopg.connect(url, row_factory=dict_row) as connection:
        return {row["id"]: row for row in connection.execute(_SELECT)}


def logged_changes(url: str) -> Counter[tuple[str, str]]:
    """(Operation, id) of the changes that were committed, counted. A changed key is a delete and an insert."""
    with psycopg.connect(url) as connection:
        return Counter(connection.execute("SELECT operation, id FROM change_log").fetchall())


class Writer(threading.Thread):
    """Makes changes, several in a transaction, spread over a time."""

    def __init__(
        self, url: str, rows: int, changes: int, seconds: float, type_rows: every_type.TypeRows
    ) -> None:
        """Prepare the writer; `start` begins the changes.

        Args:
            url: of the database.
            rows: that the table has.
            changes: rows to insert, update, delete, or give another key.
            seconds: time that they take together.
            type_rows: of the table of every type, as `prepare` has filled it; one is changed with each flight.
        """
        super().__init__(name="writer of the demo", daemon=True)
        self._url = url
        self._rows = rows
        self._type_rows = type_rows
        self._changes = changes
        self._pause_s = seconds / changes
        self._stopped = threading.Event()
        self.done = 0
        """Changes that were committed."""
        self.error: Exception | None = None

    def run(self) -> None:
        """See threading.Thread."""
        work, failed_s = _Work(self._rows, self._changes), 0.0
        while self.done < self._changes and not self._stopped.is_set():
            try:
                with psycopg.connect(self._url) as connection:
                    self._write(connection, work)
            except (
                psycopg.OperationalError
            ) as error:  # the server was killed: what it had committed is in its log
                failed_s += _RETRY_S
                if failed_s > _AWAY_S:
                    self.error = error
                    return
                self._stopped.wait(_RETRY_S)
            except psycopg.Error as error:
                self.error = error
                return

    def stop(self) -> None:
        """End after the transaction that runs."""
        self._stopped.set()

    def _write(self, connection: psycopg.Connection[Any], work: "_Work") -> None:
        while self.done < self._changes and not self._stopped.is_set():
            size = min(work.choose.randint(1, _LARGEST_TRANSACTION), self._changes - self.done)
            with connection.transaction():
                for _ in range(size):
                    work.change(connection)
                    self._type_rows.change(connection)
            self.done += size
            self._stopped.wait(self._pause_s * size)


class _Work:
    """Chooses changes, the same ones in each run."""

    def __init__(self, rows: int, changes: int) -> None:
        self.choose = random.Random(7)  # noqa: S311 - repeatable rows, no secret
        self._ids = [name for name, _ in flights.rows(rows)]
        self._new_flights = flights.rows(changes * 2, rows)

    def change(self, connection: psycopg.Connection[Any]) -> None:
        """Make one change in the transaction that runs."""
        kind = self.choose.choices(list(_SHARES), list(_SHARES.values()))[0]
        ids, index = self._ids, self.choose.randrange(len(self._ids))
        if kind == "insert":
            name, row = next(self._new_flights)
            connection.execute(_INSERT, _values(name, row))
            ids.append(name)
        elif kind == "update":
            delay = self.choose.randint(1, 90)
            connection.execute(
                "UPDATE flights SET delay = coalesce(delay, 0) + %s WHERE id = %s", (delay, ids[index])
            )
        elif kind == "delete":
            connection.execute("DELETE FROM flights WHERE id = %s", (ids.pop(index),))
        else:
            name, _ = next(self._new_flights)
            connection.execute("UPDATE flights SET id = %s WHERE id = %s", (name, ids[index]))
            ids[index] = name


def _values(name: str, row: flights.Row) -> Sequence[Any]:
    def number(text: str) -> int | None:
        return None if text == flights.MISSING else int(float(text))

    tailnum = None if row["tailnum"] == flights.MISSING else row["tailnum"]
    return (
        name,
        row["carrier"],
        number(row["flight"]),
        tailnum,
        row["origin"],
        row["dest"],
        number(row["distance"]),
        number(row["dep_delay"]),
    )
