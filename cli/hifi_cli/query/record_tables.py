"""Records of topics as tables of SQLite, with their headers and fields.."""

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
from aiokafka import ConsumerRecord

from hifi.kafka.topics import Topics
from hifi.record.fields import fields
from hifi.record.headers import ACCEPTED, DESTINATION, OUTCOME, PIPE, REASON, SEQ, SERVICE
from hifi.record.heartbeat import is_heartbeat

COLUMNS: Final = (
    "topic TEXT",
    "partition INTEGER",
    '"offset" INTEGER',
    "appended TEXT",
    "appended_us INTEGER",
    "accepted TEXT",
    "accepted_us INTEGER",
    "pipe TEXT",
    "event TEXT",
    "destination TEXT",
    "outcome TEXT",
    "reason TEXT",
    "service TEXT",
    "key TEXT",
    "value TEXT",
    "size_bytes INTEGER",
    "headers TEXT",
)
"""Of every table. `event` is the identity `<epoch>:<sequence>`; `headers` a JSON object with all headers and fields;
`value` NULL where it is no text."""
NAMES: Final = tuple(column.split()[0].strip('"') for column in COLUMNS)
RECEIPTS: Final = "receipts"
"""The one table whose records have no data of events."""
_RETRY_IN: Final = "retry_in"
TABLES: Final = ("raw", "normalized", "enriched", _RETRY_IN, "retry_out", "parked", "dead_letter", RECEIPTS)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def topics_of(table: str, topics: Topics, existing_names: Collection[str]) -> list[str]:
    """The topics whose records a table has. `existing_names`: topics in Kafka, with tiers that were removed."""
    if table == _RETRY_IN:
        return sorted(name for name in existing_names if topics.tier_of(name) is not None)
    return [f"{topics.stream}.{table.replace('_', '-')}"]


def create_tables(database: sqlite3.Connection, tables: Iterable[str]) -> None:
    """Make empty tables."""
    for table in tables:
        database.execute(f"CREATE TABLE {table} ({', '.join(COLUMNS)})")


def insert(database: sqlite3.Connection, table: str, records: Iterable[ConsumerRecord]) -> None:
    """Add records, without heartbeats, to a table that `create_tables` made."""
    placeholders = ", ".join("?" * len(NAMES))
    statement = f"INSERT INTO {table} VALUES ({placeholders})"  # noqa: S608 - the table is one of `TABLES`
    rows = (_row(record) for record in records if not is_heartbeat(record.headers))
    database.executemany(statement, rows)


def _row(record: ConsumerRecord) -> tuple[Any, ...]:
    headers = {name: value.decode("utf-8", "replace") for name, value in fields(record.headers).items()}
    accepted_us, appended_us = _number(headers, ACCEPTED), record.timestamp * 1000
    return (
        record.topic,
        record.partition,
        record.offset,
        _iso(appended_us),
        appended_us,
        _iso(accepted_us),
        accepted_us,
        *(headers.get(name) for name in (PIPE, SEQ, DESTINATION, OUTCOME, REASON, SERVICE)),
        _text(record.key),
        _text(record.value),
        len(record.value or b""),
        orjson.dumps(headers).decode(),
    )


def _number(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name, "")
    return int(text) if text.isdecimal() and len(text) < len(str(2**63)) else None


def _iso(time_us: int | None) -> str | None:
    """A time such as `2026-11-27T12:00:00.123456Z`, which compares as text; None for None, and for what is no date."""
    if time_us is None:
        return None
    try:
        time = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return None
    return f"{time:%Y-%m-%dT%H:%M:%S.%f}Z"


def _text(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None
