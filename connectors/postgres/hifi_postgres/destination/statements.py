"""The SQL of a PostgreSQL destination, and the values of an event for it. Pure.

Every statement compares positions. A row of another partition than the event's is replaced: offsets of two partitions
have no order, and it happens only where rows are not identified by the event key. Nor do offsets of two logs of the
stream: between them the event that was accepted later stands, and the other one is refused as superseded.

Rows are written with one statement for many of them, which takes an array for each column, or with a statement for
each row. Both write the same.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, NamedTuple

import orjson
from psycopg.sql import SQL, Composable, Composed, Identifier, Placeholder
from psycopg.types.json import Jsonb

from hifi.delivery.field_value import fields, value_at
from hifi.delivery.kind import OutboundEvent
from hifi.runtime.errors import Rejected
from hifi_postgres.declaration import PostgresSettings
from hifi_postgres.destination.arrays import array

_LOG: Final = "event.log"
_PARTITION: Final = "event.partition"
_OFFSET: Final = "event.offset"
_ACCEPTED: Final = "event.accepted"
_KEY: Final = "event.key"
"""Names of parameters. No column has a name with a full stop."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Change(Enum):
    """What an event does to the table."""

    WRITE = "write"
    DELETE = "delete"


class RowChange(NamedTuple):
    """A change and the parameters of its statement."""

    change: Change
    parameters: dict[str, Any]


class Execution(NamedTuple):
    """A statement and the parameters of each time that it is executed."""

    statement: Composed | bytes
    parameters: Sequence[Mapping[str, Any] | Sequence[str]]


class TableStatements:
    """The statements of one destination."""

    def __init__(self, settings: PostgresSettings) -> None:
        """Build the statements.

        Args:
            settings: of the destination.
        """
        self._settings = settings
        self._columns = [*settings.columns, *settings.attributes]
        position = dict(zip(settings.position_columns, [_LOG, _PARTITION, _OFFSET, _ACCEPTED], strict=False))
        self._values = {name: name for name in self._columns} | position
        """Columns of a row that is written, and the names of their parameters."""
        self.table = _table(settings.table)
        self._names: dict[str, Any] = {
            "table": self.table,
            "log": Identifier(settings.log_column),
            "partition": Identifier(settings.partition_column),
            "offset": Identifier(settings.offset_column),
            "accepted": Identifier(settings.accepted_column),
            "columns": _listed(list(self._values)),
            "key": _listed(settings.key),
        }
        if settings.tombstones is not None:
            self._names["tombstones"] = _table(settings.tombstones)
        self.superseded = None if settings.mode == "append" else self._superseded()
        """Statement that says whether a row change came after one of another log that is newer; None: none can."""
        self._write_row = self._write(self._row_source())
        self._delete_row = None if settings.tombstones is None else self._delete()
        self._write_rows: dict[tuple[str, ...], bytes] = {}
        """By the types of the arrays."""

    def operation(self, event: OutboundEvent) -> RowChange:
        """The operation of an event.

        Raises:
            Rejected: the data is no JSON object, or has no key; or the position of the event is unknown.
        """
        data = fields(event)
        settings = self._settings
        values: dict[str, Any] = {name: value_at(data, path) for name, path in settings.columns.items()}
        for name, attribute in settings.attributes.items():
            values[name] = event.attributes.get(attribute)
        if missing := [name for name in settings.key if values[name] is None]:
            raise Rejected("no-key", f"the data has no value for the key column {missing[0]}")
        parameters = {
            name: Jsonb(value) if isinstance(value, dict | list) else value for name, value in values.items()
        }
        parameters |= {_LOG: event.log, _PARTITION: event.partition, _OFFSET: event.offset}
        if settings.mode != "append":
            parameters[_ACCEPTED] = _time_text(event.accepted_us)
        if settings.tombstones is not None:
            parameters[_KEY] = orjson.dumps([values[name] for name in settings.key]).decode()
        return RowChange(self._change(data), parameters)

    def _change(self, data: dict[str, Any]) -> Change:
        settings = self._settings
        if settings.mode == "delete":
            return Change.DELETE
        delete_when = settings.delete_when
        if delete_when and all(value_at(data, path) == value for path, value in delete_when.items()):
            return Change.DELETE
        return Change.WRITE

    def executions(
        self, operations: Sequence[RowChange], types: Mapping[str, str] | None
    ) -> Iterator[Execution]:
        """What to execute, in this order.

        Args:
            operations: of the events of a batch.
            types: of the table's columns, by name; None: a statement for each row.
        """
        for change, same in groupby(operations, lambda operation: operation.change):
            rows = [operation.parameters for operation in same]
            if change is Change.DELETE:
                assert self._delete_row is not None
                yield Execution(self._delete_row, rows)
                continue
            for distinct in _without_repetition(rows, self._settings.key):
                together = None if types is None or len(distinct) == 1 else self._together(distinct, types)
                yield together or Execution(self._write_row, distinct)

    def _together(self, rows: Sequence[dict[str, Any]], types: Mapping[str, str]) -> Execution | None:
        """One statement for many rows; None: they need one each."""
        arrays = [
            array([row[name] for row in rows], types.get(column, "")) for column, name in self._values.items()
        ]
        if self._settings.tombstones is not None:
            arrays.append(array([row[_KEY] for row in rows], "text"))
        typed = [column_array for column_array in arrays if column_array is not None]
        if len(typed) < len(arrays):
            return None
        array_types = tuple(column_array.type for column_array in typed)
        statement = self._write_rows.get(array_types)
        if statement is None:
            statement = self._write(self._rows_source(array_types)).as_bytes(None)
            self._write_rows[array_types] = statement
        return Execution(statement, [[column_array.text for column_array in typed]])

    def _row_source(self) -> Composed:
        values = SQL(", ").join([Placeholder(name) for name in self._values.values()])
        if self._settings.tombstones is None:
            return SQL("VALUES ({})").format(values)
        return SQL(
            "SELECT {values} WHERE NOT EXISTS (SELECT 1 FROM {tombstones} WHERE key = %(event.key)s AND {newer})"
        ).format(**self._names, values=values, newer=self._newer(SQL(""), _parameter))

    def _rows_source(self, array_types: Sequence[str]) -> Composed:
        tombstones = self._settings.tombstones is not None
        names = [*self._values, _KEY] if tombstones else list(self._values)
        arrays = SQL(", ").join([SQL("%s::{}[]").format(_type(array_type)) for array_type in array_types])
        source = SQL("SELECT {columns} FROM unnest({arrays}) AS event ({names})").format(
            **self._names, arrays=arrays, names=_listed(names)
        )
        if not tombstones:
            return source
        return source + SQL(
            " WHERE NOT EXISTS (SELECT 1 FROM {tombstones} AS gone WHERE gone.key = event.{event_key} AND {newer})"
        ).format(
            **self._names,
            event_key=Identifier(_KEY),
            newer=self._newer(SQL("gone."), self._column(SQL("event."))),
        )

    def _write(self, source: Composed) -> Composed:
        if self._settings.mode == "append":
            return SQL(
                "INSERT INTO {table} ({columns}) {source} ON CONFLICT ({log}, {partition}, {offset}) DO NOTHING"
            ).format(**self._names, source=source)
        sets = SQL(", ").join(
            [
                SQL("{0} = EXCLUDED.{0}").format(Identifier(name))
                for name in self._values
                if name not in self._settings.key
            ]
        )
        return SQL(
            "INSERT INTO {table} AS present ({columns}) {source} ON CONFLICT ({key}) DO UPDATE SET {sets}"
            " WHERE NOT ({newer})"
        ).format(
            **self._names,
            source=source,
            sets=sets,
            newer=self._newer(SQL("present."), self._column(SQL("EXCLUDED."))),
        )

    def _newer(self, present: SQL, event: Callable[[str], Composable]) -> Composed:
        """SQL of whether a row is newer than an event; never null.

        Args:
            present: what comes before the names of the row's columns.
            event: SQL of the event's value for a parameter.
        """
        return SQL(
            "CASE WHEN {present}{log} = {event_log} THEN coalesce({present}{partition} = {event_partition}"
            " AND {present}{offset} > {event_offset}, false)"
            " ELSE coalesce({present}{accepted} > {event_accepted}, false) END"
        ).format(
            **self._names,
            present=present,
            event_log=event(_LOG),
            event_partition=event(_PARTITION),
            event_offset=event(_OFFSET),
            event_accepted=event(_ACCEPTED),
        )

    def _column(self, prefix: SQL) -> Callable[[str], Composable]:
        """SQL of the column of a parameter in a row that is named."""
        columns = {parameter: name for name, parameter in self._values.items()}
        return lambda parameter: prefix + Identifier(columns[parameter])

    def _superseded(self) -> Composed:
        other_is_newer = SQL("{log} <> %(event.log)s AND {accepted} > %(event.accepted)s").format(
            **self._names
        )
        statement = SQL("SELECT EXISTS (SELECT 1 FROM {table} WHERE {same} AND {other_is_newer})").format(
            **self._names, same=self._same(), other_is_newer=other_is_newer
        )
        if self._settings.tombstones is None:
            return statement
        return statement + SQL(
            " OR EXISTS (SELECT 1 FROM {tombstones} WHERE key = %(event.key)s AND {other_is_newer})"
        ).format(**self._names, other_is_newer=other_is_newer)

    def _same(self) -> Composed:
        """SQL of whether a row has the key of an event."""
        return SQL(" AND ").join(
            SQL("{} = {}").format(Identifier(name), Placeholder(name)) for name in self._settings.key
        )

    def _delete(self) -> Composed:
        return SQL(
            "WITH tombstone AS (INSERT INTO {tombstones} AS present (key, {log}, {partition}, {offset}, {accepted})"
            " VALUES (%(event.key)s, %(event.log)s, %(event.partition)s, %(event.offset)s, %(event.accepted)s)"
            " ON CONFLICT (key) DO UPDATE SET {log} = EXCLUDED.{log}, {partition} = EXCLUDED.{partition},"
            " {offset} = EXCLUDED.{offset}, {accepted} = EXCLUDED.{accepted} WHERE NOT ({gone_is_newer}))"
            " DELETE FROM {table} WHERE {same} AND NOT ({row_is_newer})"
        ).format(
            **self._names,
            same=self._same(),
            gone_is_newer=self._newer(SQL("present."), self._column(SQL("EXCLUDED."))),
            row_is_newer=self._newer(SQL(""), _parameter),
        )


def _without_repetition(rows: Iterable[dict[str, Any]], key: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Rows in their order, divided where a key comes again: one statement can write a key only once."""
    distinct: list[dict[str, Any]] = []
    seen: set[tuple[Any, ...]] = set()
    for row in rows:
        key_values = tuple([row[name] for name in key])
        if key and key_values in seen:
            yield distinct
            distinct, seen = [], set()
        seen.add(key_values)
        distinct.append(row)
    yield distinct


@lru_cache(maxsize=1024)  # the events of a request share their accepted time
def _time_text(accepted_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=accepted_us)).isoformat()


def _parameter(name: str) -> Placeholder:
    return Placeholder(name)


def _table(name: str) -> Identifier:
    return Identifier(*name.split("."))


def _type(name: str) -> SQL:
    """A type as PostgreSQL itself writes it, with quotes where it needs them."""
    return SQL(name.replace("%", "%%"))


def _listed(names: Sequence[str]) -> Composed:
    return SQL(", ").join([Identifier(name) for name in names])
