"""Records of Debezium as events. No I/O.

The data of an event is the row at the top level, so that a pipe names columns as it names the fields of other events,
and beside it what happened to the row, in `change`.
"""

from typing import Any, Final

import orjson
from aiokafka import ConsumerRecord

from hifi.pipe.sources.event import SourceEvent, refused
from hifi.pipe.sources.timestamps import rfc3339
from hifi.record.headers import CONTENT_TYPE
from hifi.runtime import exact_json
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source.columns import Field, Row, Unreadable, placeholder, read_fields, read_row

_JSON: Final = b"application/json"
_OPERATIONS: Final = {"r": "snapshot", "c": "insert", "u": "update", "d": "delete", "t": "truncate"}
CHANGE: Final = "change"
"""Name of the member beside the columns; a column of this name is in conflict with it."""
_PAYLOAD: Final = b',"payload":'
"""Between the schema of a record and its payload. Quotes within the schema have a backslash."""
_OLD_KEY: Final = "__debezium.oldkey"
"""Header of the insert that a changed key makes."""


class ChangeReader:
    """Makes events of the records of one connector."""

    def __init__(self, source: DebeziumSource, cluster: str, max_bytes: int) -> None:
        """Nothing is read yet.

        Args:
            source: as the pipe declares it.
            cluster: id of the Kafka cluster.
            max_bytes: largest payload of a record.
        """
        database = source.database
        self._id = f"{cluster}/{source.topic}"
        self._attributes = [
            ("ce_specversion", b"1.0"),
            ("ce_source", f"postgresql://{database.host}:{database.port}/{database.name}".encode()),
            (CONTENT_TYPE, _JSON),
            ("ce_type", source.type.encode()),
        ]
        self._max_bytes = max_bytes
        self._placeholder = placeholder(source.topic)
        self._schemas: dict[bytes, list[Field]] = {}
        """Columns by the schema of a record, as it is written. A table has another one after each change of it."""
        self._full: dict[str, bool] = {}
        """Table to whether its replica identity is FULL, by its last update or delete."""

    def __call__(self, record: ConsumerRecord) -> SourceEvent:
        """The event of a record; one that cannot be read is marked as refused."""
        identifier = f"{self._id}/{record.partition}/{record.offset}".encode()
        headers = [*self._attributes, ("ce_id", identifier)]
        event = SourceEvent(record.offset, record.key or identifier, None, headers, None)
        if record.value is None:
            return refused(
                event, "no-data", "the record has no value; Debezium writes none with hifi's settings"
            )
        schema, _, payload = record.value.partition(_PAYLOAD)
        if len(payload or record.value) > self._max_bytes:
            detail = f"the value has {len(payload or record.value)} bytes; the limit is {self._max_bytes}"
            return refused(event, "too-large", detail)
        try:
            return self._event(event, self._fields(schema), orjson.loads(payload[:-1]), record)
        except Unreadable as why:
            return refused(event, "unreadable-column", str(why))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            return refused(
                event, "not-a-change", f"the value is no change of Debezium ({type(error).__name__})"
            )

    def _fields(self, schema: bytes) -> list[Field]:
        fields = self._schemas.get(schema)
        if fields is None:
            envelope = orjson.loads(schema + b"}")["schema"]
            row = next(member for member in envelope["fields"] if member["field"] == "after")
            if len(self._schemas) > _MOST_SCHEMAS:
                self._schemas.clear()
            fields = self._schemas[schema] = read_fields(row, self._placeholder)
            fields.sort(key=lambda field: field.name != CHANGE)
        return fields

    def _event(
        self, event: SourceEvent, fields: list[Field], envelope: dict[str, Any], record: ConsumerRecord
    ) -> SourceEvent:
        source, operation = envelope["source"], _OPERATIONS[envelope["op"]]
        table = f"{source['schema']}.{source['table']}"
        before, after = envelope.get("before"), envelope.get("after")
        key_names = list(orjson.loads(record.key)) if record.key else []
        if fields and fields[0].name == CHANGE:
            return refused(
                event, "reserved-column", f"{table} has a column {CHANGE}, which hifi adds to each event"
            )
        partial = False
        if operation == "update":
            partial = before is None
            self._full[table] = not partial
        elif operation == "delete" and _has_values(before, key_names):
            self._full[table] = True
        elif operation == "insert" and any(name == _OLD_KEY for name, _ in record.headers or ()):
            partial = not self._full.get(table, False)
        if operation == "delete" and before is not None:
            row = _deleted_row(fields, before, key_names)
        else:
            row = (
                read_row(fields, after, snapshot=operation == "snapshot", partial=partial)
                if after
                else _EMPTY
            )
        key = {name: row.values.get(name) for name in key_names}
        committed_ms = record.timestamp if operation == "snapshot" else int(source["ts_ms"])
        committed = rfc3339(committed_ms)
        change = {"op": operation, "table": table, "key": key, "committed": committed.decode()}
        if row.unchanged:
            change["unchanged"] = row.unchanged
        if operation == "update" and before is not None:
            change["before"] = read_row(fields, before, snapshot=False, partial=False).values
        event.data = exact_json.dumps({**row.values, CHANGE: change})
        event.key = record.key or table.encode()
        event.headers += [("ce_time", committed), ("ce_subject", table.encode())]
        event.time_us = committed_ms * 1000
        event.backfill = operation == "snapshot"
        return event


_EMPTY: Final = Row({}, [])
_MOST_SCHEMAS: Final = 1_000


def _deleted_row(fields: list[Field], before: dict[str, Any], key_names: list[str]) -> Row:
    """The row that was deleted, or its key: where the replica identity is not FULL, the other columns are null."""
    if not _has_values(before, key_names):
        fields = [field for field in fields if field.name in key_names]
    return read_row(fields, before, snapshot=False, partial=False)


def _has_values(row: dict[str, Any] | None, key_names: list[str]) -> bool:
    """Whether a row has values beside its key."""
    return row is not None and any(value is not None for name, value in row.items() if name not in key_names)
