"""The SQL of a PostgreSQL destination, and the values of an event for it. Pure.

Every statement compares positions. A row of another partition than the event's is replaced: offsets of two partitions
have no order, and it happens only where rows are not identified by the event key.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

import orjson
from psycopg.sql import SQL, Composed, Identifier, Placeholder
from psycopg.types.json import Jsonb

from hifi.connectors.kind import OutboundEvent
from hifi.errors import Rejected
from hifi_egest.postgres.settings import PostgresSettings
from hifi_egest.senders.field_value import fields, value_at


class Change(Enum):
    """What an event does to the table."""

    WRITE = "write"
    DELETE = "delete"


class RowChange(NamedTuple):
    """A change and the parameters of its statement."""

    change: Change
    parameters: dict[str, Any]


class TableStatements:
    """The statements of one destination."""

    def __init__(self, settings: PostgresSettings) -> None:
        """Build the statements.

        Args:
            settings: of the destination.
        """
        self._settings = settings
        self._columns = [*settings.columns, *settings.attributes]
        names = {
            "table": _table(settings.table),
            "partition": Identifier(settings.partition_column),
            "offset": Identifier(settings.offset_column),
            "columns": _listed([*self._columns, settings.partition_column, settings.offset_column]),
            "values": SQL(", ").join(
                [Placeholder(name) for name in [*self._columns, "event.partition", "event.offset"]]
            ),
            "key": _listed(settings.key),
        }
        if settings.tombstones is not None:
            names["tombstones"] = _table(settings.tombstones)
        self.statements = {
            Change.WRITE: self._append(names) if settings.mode == "append" else self._upsert(names)
        }
        """Statement of each change."""
        if settings.tombstones is not None:
            self.statements[Change.DELETE] = self._delete(names)

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
        parameters |= {"event.partition": event.partition, "event.offset": event.offset}
        if settings.tombstones is not None:
            parameters["event.key"] = orjson.dumps([values[name] for name in settings.key]).decode()
        return RowChange(self._change(data), parameters)

    def _change(self, data: dict[str, Any]) -> Change:
        settings = self._settings
        if settings.mode == "delete":
            return Change.DELETE
        wanted = settings.delete_when
        if wanted and all(value_at(data, path) == value for path, value in wanted.items()):
            return Change.DELETE
        return Change.WRITE

    def _append(self, names: dict[str, Any]) -> Composed:
        return SQL(
            "INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT ({partition}, {offset}) DO NOTHING"
        ).format(**names)

    def _upsert(self, names: dict[str, Any]) -> Composed:
        source = SQL("VALUES ({values})")
        if self._settings.tombstones is not None:
            source = SQL(
                "SELECT {values} WHERE NOT EXISTS (SELECT 1 FROM {tombstones} WHERE key = %(event.key)s"
                " AND {partition} = %(event.partition)s AND {offset} > %(event.offset)s)"
            )
        own = [self._settings.partition_column, self._settings.offset_column]
        changed = [name for name in self._columns if name not in self._settings.key] + own
        sets = SQL(", ").join(SQL("{0} = EXCLUDED.{0}").format(Identifier(name)) for name in changed)
        return SQL(
            "INSERT INTO {table} AS present ({columns}) {source} ON CONFLICT ({key}) DO UPDATE SET {sets}"
            " WHERE present.{partition} IS DISTINCT FROM EXCLUDED.{partition}"
            " OR present.{offset} <= EXCLUDED.{offset}"
        ).format(**names, source=source.format(**names), sets=sets)

    def _delete(self, names: dict[str, Any]) -> Composed:
        same = SQL(" AND ").join(
            SQL("{} = {}").format(Identifier(name), Placeholder(name)) for name in self._settings.key
        )
        return SQL(
            "WITH tombstone AS (INSERT INTO {tombstones} AS present (key, {partition}, {offset})"
            " VALUES (%(event.key)s, %(event.partition)s, %(event.offset)s) ON CONFLICT (key) DO UPDATE"
            " SET {partition} = EXCLUDED.{partition}, {offset} = EXCLUDED.{offset}"
            " WHERE present.{partition} <> EXCLUDED.{partition} OR present.{offset} < EXCLUDED.{offset})"
            " DELETE FROM {table} WHERE {same} AND ({partition} IS DISTINCT FROM %(event.partition)s"
            " OR {offset} <= %(event.offset)s)"
        ).format(**names, same=same)


def _table(name: str) -> Identifier:
    return Identifier(*name.split("."))


def _listed(names: Sequence[str]) -> Composed:
    return SQL(", ").join([Identifier(name) for name in names])
