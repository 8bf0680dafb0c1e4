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
from hifi_debezium.declaration import DebeziumSource

_JSON: Final = b"application/json"
_OPERATIONS: Final = {"r": "snapshot", "c": "insert", "u": "update", "d": "delete", "t": "truncate"}
CHANGE: Final = "change"
"""Name of the member beside the columns; a column of this name is in conflict with it."""


class ChangeReader:
    """Makes events of the records of one connector."""

    def __init__(self, source: DebeziumSource, cluster: str, max_bytes: int) -> None:
        """Nothing is read yet.

        Args:
            source: as the pipe declares it.
            cluster: id of the Kafka cluster.
            max_bytes: largest value of a record.
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

    def __call__(self, record: ConsumerRecord) -> SourceEvent:
        """The event of a record; one that cannot be read is marked as refused."""
        identifier = f"{self._id}/{record.partition}/{record.offset}".encode()
        headers = [*self._attributes, ("ce_id", identifier)]
        event = SourceEvent(record.offset, record.key or identifier, None, headers, None)
        if record.value is None:
            return refused(
                event, "no-data", "the record has no value; Debezium writes none with hifi's settings"
            )
        if len(record.value) > self._max_bytes:
            detail = f"the value has {len(record.value)} bytes; the limit is {self._max_bytes}"
            return refused(event, "too-large", detail)
        try:
            return _change(event, orjson.loads(record.value), record)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            return refused(
                event, "not-a-change", f"the value is no change of Debezium ({type(error).__name__})"
            )


def _change(event: SourceEvent, envelope: dict[str, Any], record: ConsumerRecord) -> SourceEvent:
    source, operation = envelope["source"], _OPERATIONS[envelope["op"]]
    table = f"{source['schema']}.{source['table']}"
    before, after = envelope.get("before"), envelope.get("after")
    row = (before if operation == "delete" else after) or {}
    if CHANGE in row:
        return refused(
            event, "reserved-column", f"{table} has a column {CHANGE}, which hifi adds to each event"
        )
    key = orjson.loads(record.key) if record.key else {}
    # A deleted row has only its key where the table's replica identity is not FULL; the other columns are null then.
    committed_ms = record.timestamp if operation == "snapshot" else int(source["ts_ms"])
    committed = rfc3339(committed_ms)
    change = {"op": operation, "table": table, "key": key, "committed": committed.decode()}
    if operation == "update" and before is not None:
        change["before"] = before
    event.data = orjson.dumps({**row, **key, CHANGE: change})
    event.key = record.key or table.encode()
    event.headers += [("ce_time", committed), ("ce_subject", table.encode())]
    event.time_us = committed_ms * 1000
    event.backfill = operation == "snapshot"
    return event
