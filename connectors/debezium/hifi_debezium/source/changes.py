"""Records of Debezium as events. No I/O.

The data of an event is the row at the top level, so that a pipe names columns as it names the fields of other events,
and beside it what happened to the row, in `change`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson
from aiokafka import ConsumerRecord

from hifi.pipe.sources.event import SourceEvent, refused
from hifi.pipe.sources.timestamps import rfc3339
from hifi.record.headers import CONTENT_TYPE
from hifi.runtime import exact_json, log
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source.columns import (
    Field,
    Row,
    Types,
    Unreadable,
    is_kept,
    placeholder,
    read_fields,
    read_row,
    types_to_look_up,
)
from hifi_debezium.source.key_records import KeyRecord, LeftKey, key_record, mark_record
from hifi_debezium.source.snapshot_marks import BEGUN, COLUMNS, ENDED, SCANNED

_JSON: Final = b"application/json"
_OPERATIONS: Final = {"r": "snapshot", "c": "insert", "u": "update", "d": "delete"}
_READ: Final = "SUCCEEDED"
"""Outcome of a table's part in a snapshot."""
logger = log.get(__name__)

CHANGE: Final = "change"
"""Name of the member beside the columns; a column of this name is in conflict with it."""
_PAYLOAD: Final = b',"payload":'
"""Between the schema of a record and its payload. Quotes within the schema have a backslash."""
_OLD_KEY: Final = "__debezium.oldkey"
"""Header of the insert that a changed key makes."""
_NOTIFICATION: Final = "aggregate_type"
"""Member of what Debezium tells of itself in the topic of the changes."""
SNAPSHOT_TABLES: Final = "snapshot.include.collection.list"
"""Setting of the tables that snapshots read: others are left out on purpose."""
_SNAPSHOT: Final = "Initial Snapshot"


class Sweep(NamedTuple):
    """Rows that are gone without a change of their own.

    Attributes:
        tables: to the offset before which their changes were; empty: those of the snapshot that ends.
        why: `truncate` or `snapshot`.
        committed_ms: when they were gone at the latest, milliseconds since 1970 UTC.
    """

    tables: Mapping[str, int]
    why: str
    committed_ms: int


class ChangeEvent(SourceEvent):
    """The event of a record of Debezium.

    Attributes:
        key_records: what it says of the keys of rows.
        sweep: rows that are gone with it; None, if it is `followed`: a snapshot begins, or Debezium makes none.
    """

    __slots__ = ("key_records", "sweep")
    key_records: tuple[KeyRecord, ...]
    sweep: Sweep | None


class ChangeReader:
    """Makes events of the records of one connector."""

    def __init__(self, source: DebeziumSource, cluster: str, max_bytes: int) -> None:
        """Start without columns.

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
        self._truncate = source.truncate
        self._tables: list[str] = [] if SNAPSHOT_TABLES in source.settings else source.tables
        """That a snapshot has to read, besides those that it tells of."""
        self._snapshots_rows = source.settings.get("snapshot.mode") != "no_data"
        self._max_bytes = max_bytes
        self._placeholder = placeholder(source.topic)
        self._schemas: dict[bytes, _Columns] = {}
        """Columns by the schema of a record, as it is written. A table has another one after each change of it."""
        self.columns: dict[str, dict[str, int]] | None = None
        """Table to the columns that it has had, and the offset of the first change with each; None: not known yet."""
        self.types: Types = {}
        """What the types of users and extensions are; see `types_to_look_up`."""
        self.unknown: dict[str, str] = {}
        """Column with its table to its type, of those whose type is not known: their values are refused."""
        self._seen_schemas: set[bytes] = set()
        """Schemas whose types are in `types`."""
        self.ignored = ""
        """Table whose TRUNCATE was ignored last."""
        self._has_full_identity: dict[str, bool] = {}
        """Table to whether its replica identity is FULL, by its last update or delete."""

    def __call__(self, record: ConsumerRecord) -> ChangeEvent:
        """The event of a record; one that cannot be read is marked as refused."""
        identifier = f"{self._id}/{record.partition}/{record.offset}".encode()
        headers = [*self._attributes, ("ce_id", identifier)]
        event = ChangeEvent(record.offset, record.key or identifier, None, headers, None)
        event.key_records, event.sweep = (), None
        if record.value is None:
            refused(event, "no-data", "the record has no value; Debezium writes none with hifi's settings")
        else:
            self._make(event, record)
        return event

    def unknown_types(self, batch: Sequence[ConsumerRecord]) -> set[str]:
        """The types of columns in a batch of records that `learn` has to tell before the batch is read."""
        type_names, last_schema = set[str](), _PAYLOAD
        for record in batch:
            value: bytes = record.value or b""
            if value.startswith(last_schema):
                continue
            schema = value[: value.find(_PAYLOAD)]
            if schema not in self._seen_schemas:
                try:
                    row = _row_schema(schema)
                    row_types = set() if row is None else set(types_to_look_up(row).values())
                except (ValueError, TypeError, KeyError, AttributeError):
                    continue  # it is refused when it is read
                if unknown_names := row_types - self.types.keys():
                    type_names |= unknown_names
                    continue
                if len(self._seen_schemas) > _MOST_SCHEMAS:
                    self._seen_schemas.clear()
                self._seen_schemas.add(schema)
            last_schema = schema + _PAYLOAD
        return type_names

    def learn(self, types: Types) -> None:
        """Take note of what types are."""
        self.types = {**self.types, **types}
        self.unknown.clear()
        self._schemas.clear()

    def forget_columns(self) -> None:
        """Learn again which columns the tables have: what was kept of them is gone."""
        self.columns = None
        self._schemas.clear()

    def deleted(self, record: ConsumerRecord, sweep: Sweep, row_key: LeftKey) -> SourceEvent:
        """The event of a row that is gone with a record."""
        committed_time = rfc3339(sweep.committed_ms)
        change = {
            "op": "delete", "table": row_key.table, "key": row_key.values, "committed": committed_time.decode(),
            "swept": sweep.why,
        }  # fmt: skip
        told_in = "earlier/" if row_key.earlier else ""
        identifier = f"{self._id}/{record.partition}/{record.offset}/{told_in}{row_key.offset}".encode()
        headers = [
            *self._attributes,
            ("ce_id", identifier),
            ("ce_time", committed_time),
            ("ce_subject", row_key.table.encode()),
        ]
        data = exact_json.dumps({**row_key.values, CHANGE: change})
        return SourceEvent(row_key.offset, row_key.record_key, data, headers, sweep.committed_ms * 1000)

    def _make(self, event: ChangeEvent, record: ConsumerRecord) -> SourceEvent:
        schema, _, payload = record.value.partition(_PAYLOAD)
        try:
            envelope = orjson.loads(payload[:-1])
            if _NOTIFICATION in envelope:
                return self._notice(event, envelope)
            columns = self._columns(schema, event, envelope["source"])
            if envelope["op"] == "t":
                return self._truncated(event, envelope["source"])
            if len(payload) <= self._max_bytes:
                try:
                    return self._event(event, columns, envelope, record)
                except Unreadable as unreadable:
                    self._tell_key(event, columns.fields, envelope, record)
                    return refused(event, "unreadable-column", str(unreadable))
            self._tell_key(event, columns.fields, envelope, record)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if len(payload or record.value) <= self._max_bytes:
                return refused(
                    event, "not-a-change", f"the value is no change of Debezium ({type(error).__name__})"
                )
        size = len(payload or record.value)
        return refused(event, "too-large", f"the value has {size} bytes; the limit is {self._max_bytes}")

    def _truncated(self, event: ChangeEvent, source: Mapping[str, Any]) -> SourceEvent:
        table = f"{source['schema']}.{source['table']}"
        event.skipped = True
        if self._truncate == "delete":
            event.followed = True
            event.sweep = Sweep({table: event.position}, "truncate", int(source["ts_ms"]))
        else:
            logger.warning("truncate-ignored", table=table, offset=event.position)
            self.ignored = table
        return event

    def _notice(self, event: ChangeEvent, notice: Mapping[str, Any]) -> SourceEvent:
        """Take note of what Debezium tells of its snapshot."""
        event.skipped = True
        if notice[_NOTIFICATION] != _SNAPSHOT or not self._snapshots_rows:
            return event
        additional_data = notice.get("additional_data") or {}
        if notice["type"] == "STARTED":
            values = {"tables": self._tables}
            event.followed, event.key_records = True, (mark_record(BEGUN, event.position, values),)
        elif notice["type"] == "SKIPPED":
            event.followed = True
        elif notice["type"] == "TABLE_SCAN_COMPLETED" and additional_data.get("status") == _READ:
            event.key_records = (
                mark_record(SCANNED + additional_data["scanned_collection"], event.position),
            )
        elif notice["type"] == "COMPLETED":
            event.followed, event.sweep = True, Sweep({}, "snapshot", int(notice["timestamp"]))
            event.key_records = (mark_record(ENDED, event.position),)
        return event

    @staticmethod
    def _tell_key(
        event: ChangeEvent, fields: list[Field], envelope: dict[str, Any], record: ConsumerRecord
    ) -> None:
        """Note what a change says of the key of its row, which is refused."""
        operation = envelope["op"]
        if not record.key:
            return
        source, key_columns = envelope["source"], list(orjson.loads(record.key))
        row = envelope["before"] if operation == "d" else envelope["after"]
        keys = [field for field in fields if field.name in key_columns]
        try:
            values = read_row(keys, row, snapshot=operation == "r", partial=False).values
        except Unreadable:
            return  # no event has this key
        table, values_json = f"{source['schema']}.{source['table']}", exact_json.dumps(values)
        offset = None if operation == "d" else event.position
        event.key_records = (*event.key_records, key_record(table, record.key, values_json, offset))

    def _columns(self, schema: bytes, event: ChangeEvent, source: Mapping[str, Any]) -> "_Columns":
        columns = self._schemas.get(schema)
        if columns is not None and columns.first <= event.position < columns.end:
            return columns
        row = _row_schema(schema)
        if row is None:
            raise KeyError("after")
        fields = read_fields(row, self._placeholder, self.types)
        fields.sort(key=lambda field: field.name != CHANGE)
        table = f"{source['schema']}.{source['table']}"
        self.unknown |= {
            f"{table}.{column}": name
            for column, name in types_to_look_up(row).items()
            if not self.types.get(name)
        }
        first_offsets = (self.columns or {}).get(table, {})
        names = {field.name: event.position for field in fields}
        if any(event.position < first_offsets.get(name, event.position + 1) for name in names):
            if first_offsets:
                logger.warning(
                    "columns-added", table=table, columns=sorted(names.keys() - first_offsets.keys())
                )
            first_offsets = {**names, **first_offsets} | {
                name: min(offset, first_offsets.get(name, offset)) for name, offset in names.items()
            }
            self.columns = {**(self.columns or {}), table: first_offsets}
            event.key_records = (
                *event.key_records,
                mark_record(COLUMNS + table, event.position, first_offsets),
            )
            self._schemas.clear()
        absent_columns = {name: offset for name, offset in first_offsets.items() if name not in names}
        gone_columns = sorted(name for name, offset in absent_columns.items() if offset < event.position)
        end = (
            min((offset for offset in absent_columns.values() if offset >= event.position), default=_NO_END)
            + 1
        )
        if gone_columns:
            logger.warning("columns-gone", table=table, columns=gone_columns)
        if len(self._schemas) > _MOST_SCHEMAS:
            self._schemas.clear()
        kept_names = frozenset(field.name for field in fields if is_kept(field))
        columns = self._schemas[schema] = _Columns(fields, kept_names, gone_columns, event.position, end)
        return columns

    def _event(
        self, event: ChangeEvent, columns: "_Columns", envelope: dict[str, Any], record: ConsumerRecord
    ) -> SourceEvent:
        fields = columns.fields
        source, operation = envelope["source"], _OPERATIONS[envelope["op"]]
        table = f"{source['schema']}.{source['table']}"
        row_before, row_after = envelope.get("before"), envelope.get("after")
        key_names = list(orjson.loads(record.key)) if record.key else []
        if fields and fields[0].name == CHANGE:
            self._tell_key(event, fields, envelope, record)
            return refused(
                event, "reserved-column", f"{table} has a column {CHANGE}, which hifi adds to each event"
            )
        partial = False
        if operation == "update":
            partial = row_before is None or _is_long_key(row_before, key_names)
            self._has_full_identity[table] = not partial
        elif operation == "delete" and _has_values(row_before, key_names):
            self._has_full_identity[table] = True
        elif operation == "insert" and any(name == _OLD_KEY for name, _ in record.headers or ()):
            partial = not self._has_full_identity.get(table, False)
        if operation == "delete" and row_before is not None:
            row = _deleted_row(fields, row_before, key_names)
        else:
            row = (
                read_row(fields, row_after, snapshot=operation == "snapshot", partial=partial)
                if row_after
                else _EMPTY
            )
        key = {name: row.values.get(name) for name in key_names}
        if record.key:
            is_as_written = columns.kept.issuperset(key_names)
            key_entry = key_record(
                table,
                record.key,
                record.key if is_as_written else exact_json.dumps(key),
                None if operation == "delete" else event.position,
            )
            event.key_records = (*event.key_records, key_entry) if event.key_records else (key_entry,)
        committed_ms = record.timestamp if operation == "snapshot" else int(source["ts_ms"])
        committed_time = rfc3339(committed_ms)
        change = {"op": operation, "table": table, "key": key, "committed": committed_time.decode()}
        if row.unchanged:
            change["unchanged"] = row.unchanged
        if columns.gone:
            change["gone"] = columns.gone
        if operation == "update" and row_before is not None and not partial:
            change["before"] = read_row(fields, row_before, snapshot=False, partial=False).values
        event.data = exact_json.dumps({**row.values, CHANGE: change})
        event.key = record.key or table.encode()
        event.headers += [("ce_time", committed_time), ("ce_subject", table.encode())]
        event.time_us = committed_ms * 1000
        event.backfill = operation == "snapshot"
        return event


def _row_schema(schema: bytes) -> Mapping[str, Any] | None:
    """The schema of the row of a record; None: the record has no row.

    Args:
        schema: the record up to its payload.

    Raises:
        ValueError, TypeError, KeyError: it is no record of Debezium.
    """
    members: list[dict[str, Any]] = orjson.loads(schema + b"}")["schema"]["fields"]
    return next((member for member in members if member["field"] == "after"), None)


@dataclass(frozen=True)
class _Columns:
    """The columns of a table, as one schema has them.

    Attributes:
        fields: of the row.
        kept: names of columns whose values are as Debezium writes them.
        gone: names of columns that the table had before.
        first: offset of the first record for which that holds.
        end: offset before which it holds.
    """

    fields: list[Field]
    kept: frozenset[str]
    gone: list[str]
    first: int
    end: int


_EMPTY: Final = Row({}, [])
_MOST_SCHEMAS: Final = 1_000
_NO_END: Final = 2**63
_LONG_KEY: Final = 100
"""Characters of a key; one that is stored apart from its row has more."""


def _deleted_row(fields: list[Field], before: dict[str, Any], key_names: list[str]) -> Row:
    """The row that was deleted, or its key: where the replica identity is not FULL, the other columns are null."""
    if not _has_values(before, key_names):
        fields = [field for field in fields if field.name in key_names]
    return read_row(fields, before, snapshot=False, partial=False)


def _is_long_key(row: dict[str, Any], key_names: list[str]) -> bool:
    """Whether a row is the key alone, which PostgreSQL writes before an update if it is stored apart from its row."""
    if _has_values(row, key_names):
        return False
    return sum(len(value) for name in key_names if isinstance(value := row[name], str)) >= _LONG_KEY


def _has_values(row: dict[str, Any] | None, key_names: list[str]) -> bool:
    """Whether a row has values beside its key."""
    return row is not None and any(value is not None for name, value in row.items() if name not in key_names)
