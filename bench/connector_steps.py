"""The measured steps: what each one reads and writes, the service that does it, and the loop that does it by hand."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from connector_targets import FolderTarget, TableTarget, Target, TopicTarget
from enriched_events import PIPE, order, write_enriched
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict

from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.record.record import Record
from hifi_infra.kafka.stream_setup import prepare, put_in_force

BARE: Final = Path(__file__).parent / "peers/bare"
PARTITIONS: Final = 4
SOURCE_EVENTS: Final = 200_000
DESTINATION_EVENTS: Final = 80_000
BATCH: Final = 500
"""Largest number of events in a write to a destination, of the service and of the loop."""
DATABASE_URL: Final = "BENCH_DATABASE"
SOURCES: Final = ("kafka source", "debezium source", "sql source", "objects source")
DESTINATIONS: Final = (
    "kafka",
    "postgres upsert",
    "postgres append",
    "objects ndjson",
    "objects parquet",
)
SOURCE_TABLE: Final = """
    CREATE TABLE source_rows AS
    SELECT number AS id, number % 1000 + 0.5::float8 AS total, repeat('n', 300) AS note
    FROM generate_series(1, {events}) AS number
"""
LIVE: Final = {"rate": 100_000_000, "after": "1h"}
"""How backfill is declared: nothing has a pace."""
_AT_ONCE: Final = 5000
_COLUMNS: Final = {"id": "id", "total": "total", "note": "note"}


@dataclass(frozen=True)
class StepSystems:
    """Systems that the steps of a round share.

    Attributes:
        kafka: bootstrap servers.
        connect: URL of a program that answers as Kafka Connect does.
        database: URL of a database.
        folder: of the round.
    """

    kafka: str
    connect: str
    database: str
    folder: Path


@dataclass(frozen=True)
class Step:
    """A step whose input is written. The service and the loop read the same records.

    Attributes:
        service: of the mesh.
        target: makes what the service writes to, empty.
        loop: command of the loop.
        loop_target: makes what the loop writes to, empty.
        events: that are to be written.
    """

    service: str
    target: Callable[[], Target]
    loop: list[str]
    loop_target: Callable[[], Target]
    events: int


async def prepare_step(name: str, systems: StepSystems, topics: Topics) -> Step:
    """Make the stream, declare its pipe, and write the input of a step."""
    if name not in SOURCES:
        return await _destination(name, systems, topics)
    make = _polled if name in ("sql source", "objects source") else _source
    return await make(name, systems, topics)


async def _source(name: str, systems: StepSystems, topics: Topics) -> Step:
    """A step from a topic to `raw`."""
    kind = name.partition(" ")[0]
    topic, partitions = f"{topics.stream}-source", PARTITIONS if kind == "kafka" else 1
    await TopicTarget(systems.kafka, topic).create(partitions)
    source: dict[str, Any] = {
        "kind": kind,
        "bootstrap": systems.kafka,
        "topic": topic,
        "backfill": LIVE,
    }
    if kind == "debezium":
        database = _database(systems)
        source |= {"connect": systems.connect, "database": database, "tables": ["public.orders"]}
    await _declare(systems, topics, source, {"name": "nowhere", "url": "http://127.0.0.1:9/"})
    await write_source(systems.kafka, topic, partitions, kind, SOURCE_EVENTS)
    loop_target = TopicTarget(systems.kafka, f"{topics.stream}-loop")
    await loop_target.create(PARTITIONS)
    return Step(
        "collect",
        lambda: TopicTarget(systems.kafka, topics.raw),
        _loop("source_loop.py", kind, systems.kafka, topic, loop_target.topic, str(PARTITIONS)),
        lambda: loop_target,
        SOURCE_EVENTS,
    )


async def _polled(name: str, systems: StepSystems, topics: Topics) -> Step:
    """A step from a table or a folder to `raw`."""
    kind = name.partition(" ")[0]
    source: dict[str, Any] = {"kind": kind, "backfill": LIVE}
    if kind == "sql":
        location = systems.database
        source |= {
            "database": _database(systems),
            "table": "source_rows",
            "column": "id",
            "settle": "100ms",
        }
        async with await AsyncConnection.connect(location) as connection:
            await connection.execute("DROP TABLE IF EXISTS source_rows")
            await connection.execute(SOURCE_TABLE.format(events=SOURCE_EVENTS))
            await connection.execute("ALTER TABLE source_rows ADD PRIMARY KEY (id)")
    else:
        folder = systems.folder / topics.stream / "source"
        folder.mkdir(parents=True)
        location = str(folder)
        source |= {"folder": location, "format": "ndjson", "settle": "0s"}
        (folder / "orders.ndjson").write_bytes(b"\n".join(map(order, range(SOURCE_EVENTS))))
    await _declare(systems, topics, source, {"name": "nowhere", "url": "http://127.0.0.1:9/"})
    loop_target, progress = (
        TopicTarget(systems.kafka, f"{topics.stream}-{end}") for end in ("loop", "progress")
    )
    await loop_target.create(PARTITIONS)
    await progress.create(1)
    arguments = kind, systems.kafka, location, loop_target.topic, str(PARTITIONS), progress.topic
    return Step(
        "collect",
        lambda: TopicTarget(systems.kafka, topics.raw),
        _loop("polled_loop.py", *arguments),
        lambda: loop_target,
        SOURCE_EVENTS,
    )


def _database(systems: StepSystems) -> dict[str, Any]:
    """How a source declares the database."""
    connection_options = conninfo_to_dict(systems.database)
    password = systems.folder / "password"
    password.write_text(str(connection_options["password"]))
    return {
        "host": connection_options["host"],
        "port": connection_options.get("port", 5432),
        "name": connection_options["dbname"],
        "user": connection_options["user"],
        "sslmode": "disable",
        "password_file": str(password),
    }


async def _destination(name: str, systems: StepSystems, topics: Topics) -> Step:
    """A step from `enriched` to a destination."""
    kind, _, variant = name.partition(" ")
    make_target = {"kafka": _topic, "postgres": _table, "objects": _files}[kind]
    settings, target, loop_target, loop_target_argument = await make_target(variant, systems, topics)
    declared = {"name": "d", "kind": kind, "settings": settings, "batch": {"size": BATCH, "wait": "50ms"}}
    await _declare(systems, topics, {"keys": [{"sha256": "0" * 64}]}, declared)
    await write_enriched(systems.kafka, topics, DESTINATION_EVENTS, PARTITIONS, "d")
    receipts = TopicTarget(systems.kafka, f"{topics.stream}-receipts")
    await receipts.create(PARTITIONS)
    arguments = [
        variant or kind,
        systems.kafka,
        topics.enriched,
        loop_target_argument,
        str(BATCH),
        receipts.topic,
    ]
    return Step("egest", target, _loop("destination_loop.py", *arguments), loop_target, DESTINATION_EVENTS)


_Made = tuple[dict[str, Any], Callable[[], Target], Callable[[], Target], str]
"""Settings of the destination, its target, that of the loop, and where the loop writes."""


async def _topic(_: str, systems: StepSystems, topics: Topics) -> _Made:
    targets = [TopicTarget(systems.kafka, f"{topics.stream}-{name}") for name in ("destination", "loop")]
    for target in targets:
        await target.create(PARTITIONS)
    service_target, loop = targets
    settings = {
        "bootstrap": systems.kafka,
        "topic": service_target.topic,
        "positions_topic": f"{topics.stream}-positions",
    }
    return settings, lambda: service_target, lambda: loop, loop.topic


async def _table(mode: str, systems: StepSystems, _: Topics) -> _Made:
    settings = {
        "url": {"env": DATABASE_URL},
        "table": "orders",
        "mode": mode,
        "columns": _COLUMNS,
        "key": ["id"] if mode == "upsert" else [],
    }

    def table() -> Target:
        return TableTarget(systems.database, append=mode == "append")

    return settings, table, table, systems.database


async def _files(file_format: str, systems: StepSystems, topics: Topics) -> _Made:
    service_folder, loop = (systems.folder / topics.stream / name for name in ("objects", "loop"))
    types = {"id": "long", "total": "double", "note": "string"}
    columns = {name: {"path": name, "type": kind} for name, kind in types.items()}
    settings = {"folder": str(service_folder), "format": file_format, "columns": columns}
    return (
        settings,
        lambda: FolderTarget(service_folder, file_format),
        lambda: FolderTarget(loop, file_format),
        str(loop),
    )


def _loop(script: str, *arguments: str) -> list[str]:
    return [sys.executable, str(BARE / script), *arguments]


async def _declare(
    systems: StepSystems, topics: Topics, source: dict[str, Any], destination: dict[str, Any]
) -> None:
    await prepare(systems.kafka, topics, PARTITIONS)
    pipe = Pipe.model_validate({"pipe": PIPE, "source": source, "destinations": [destination]})
    await put_in_force(systems.kafka, topics, [pipe])


async def write_source(kafka: str, topic: str, partitions: int, kind: str, events: int) -> None:
    """Write orders, or their inserts as Debezium writes them, to a topic."""
    producer = Producer(kafka, "bench")
    await producer.start()
    for first_number in range(0, events, _AT_ONCE):
        records: list[list[Record]] = [[] for _ in range(partitions)]
        for number in range(first_number, min(first_number + _AT_ONCE, events)):
            value = order(number) if kind == "kafka" else _insert(number)
            key = b"k%d" % number if kind == "kafka" else b'{"id":%d}' % number
            records[number % partitions].append(Record(key, value, []))
        for partition, partition_records in enumerate(records):
            await producer.send_and_wait(topic, partition, partition_records)
    await producer.stop()


_ROW: Final = [
    {"type": type_name, "optional": True, "field": name}
    for name, type_name in (("id", "int64"), ("total", "double"), ("note", "string"))
]
_SCHEMA: Final = {
    "type": "struct",
    "fields": [
        {"type": "struct", "fields": _ROW, "optional": True, "field": side} for side in ("before", "after")
    ],
}
"""As Kafka Connect writes it before each change."""


def _insert(number: int) -> bytes:
    position = {"db": "shop", "schema": "public", "table": "orders", "txId": number, "lsn": number}
    source = {"version": "3.4.0.Final", "connector": "postgresql", "name": "shop", **position}
    payload = {
        "before": None,
        "after": orjson.Fragment(order(number)),
        "source": source | {"ts_ms": 1_764_000_000_000 + number},
        "op": "c",
        "ts_ms": 1_764_000_000_000 + number,
    }
    return orjson.dumps({"schema": _SCHEMA, "payload": payload})
