"""Short runs of what `make equivalence` does at length, and the table of types on docs/sources.md."""

import asyncio
import random
from typing import Any

import orjson
import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord
from tests.equivalence.run import Reading, Systems, declare, run_seed
from tests.equivalence.tables import Table

from hifi.kafka.admin import topic_names
from hifi.pipe.sources.event import SourceEvent
from hifi.record.headers import REFUSED
from hifi.record.refusal import parse_refusal
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source.changes import ChangeReader
from hifi_debezium.source.connector import Connector
from hifi_debezium.source.slot import held_by_slot
from hifi_debezium.source.type_lookup import look_up_types
from hifi_debezium.type_table import TYPES

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


def changes_of(cdc: Systems, name: str, tables: list[str], **settings: Any) -> DebeziumSource:
    return DebeziumSource.model_validate(
        {
            "kind": "debezium",
            "connect": cdc.worker.url,
            "bootstrap": cdc.kafka.bootstrap,
            "topic": f"changes.{name}",
            "database": {
                "host": "127.0.0.1",
                "port": cdc.source.port,
                "name": "postgres",
                "user": "postgres",
                "password_file": str(cdc.folder / "password"),
            },
            "tables": [f"public.{table}" for table in tables],
            **settings,
        }
    )


async def test_source_and_destination_are_equal_row_by_row(cdc: Systems) -> None:
    report_lines: list[str] = []
    numbers = await run_seed(cdc, 1, 500, report_lines.append)
    assert (numbers["differences"], numbers["refused"]) == (0, 0), "\n".join(report_lines)
    assert numbers["changes"] >= 500
    assert numbers["rows"] > 20
    assert numbers["swept"] > 0


async def test_the_slot_moves_while_the_captured_tables_are_idle_and_others_are_busy(cdc: Systems) -> None:
    with psycopg.connect(cdc.source.url, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE idle (id integer PRIMARY KEY); CREATE TABLE busy (id bigserial, v text)"
        )
        connection.execute("INSERT INTO idle VALUES (1)")
        source = changes_of(cdc, "idle", ["idle"], most_held=1000, settings={"heartbeat.interval.ms": "500"})
        connector = Connector("equivalence", "idle", source)
        await declare(connector)
        slot = connector.config()["slot.name"]
        position = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s"
        async with asyncio.timeout(60):
            while not connection.execute(position, [slot]).fetchall():
                await asyncio.sleep(0.5)
        connection.execute("INSERT INTO busy (v) SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
        wal_position = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
        assert wal_position is not None
        moved_query = "SELECT confirmed_flush_lsn > %s FROM pg_replication_slots WHERE slot_name = %s"
        async with asyncio.timeout(60):
            while connection.execute(moved_query, [wal_position[0], slot]).fetchone() != (True,):
                await asyncio.sleep(0.5)
        held_log = await held_by_slot(source, slot, "p")
        assert held_log.bytes > 0
        assert not await topic_names(cdc.kafka.bootstrap, f"{source.topic}.message")
        assert f"for the slot {slot}, which is read" in held_log.excess
        unknown = source.model_copy(
            update={"database": source.database.model_copy(update={"password_file": cdc.folder / "none"})}
        )
        assert (await held_by_slot(unknown, slot, "p")).bytes == 0


class Collected:
    """Takes events as a delivery does, and keeps them."""

    def __init__(self) -> None:
        self.events: list[SourceEvent] = []
        self.add = self.events.extend

    async def write(self) -> None:
        """Nothing is written."""


@pytest.mark.more
async def test_rows_of_a_snapshot_that_is_interrupted_before_the_first_one_come_all_the_same(
    cdc: Systems,
) -> None:
    """Debezium, when it is started again, takes it for done: its begin was written, with an empty offset."""
    pipe = cdc.pipe("interrupted", [Table("interrupted", random.Random(1))])
    delayed = {"snapshot.delay.ms": "5000"}
    source = changes_of(cdc, "interrupted", ["interrupted"], settings=delayed)
    pipe = pipe.model_copy(update={"source": source})
    connector = Connector("equivalence", "interrupted", source)
    collected = Collected()
    topic_reader = Reading(cdc, pipe, collected)  # type: ignore[arg-type]
    await topic_reader.prepare()
    with psycopg.connect(cdc.source.url) as connection:
        connection.execute("CREATE TABLE interrupted (id integer PRIMARY KEY)")
        connection.execute("INSERT INTO interrupted SELECT generate_series(1, 5)")
        connection.commit()
        await declare(connector)
        async with asyncio.timeout(60):
            while not connection.execute(
                "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND confirmed_flush_lsn IS NOT NULL",
                [connector.config()["slot.name"]],
            ).fetchall():
                connection.commit()
                await asyncio.sleep(0.1)
        connection.commit()
        connection.execute("LOCK TABLE interrupted IN ACCESS EXCLUSIVE MODE")  # its rows cannot be read
        await topic_reader.start()
        await topic_reader.read(lambda: topic_reader.count > 0, 60)
        assert collected.events == []
        assert cdc.worker.process is not None
        restarts_before = cdc.worker.restarts
        await cdc.worker.process.kill()
    async with asyncio.timeout(120):
        while cdc.worker.restarts == restarts_before:
            await asyncio.sleep(0.5)
    ids = [1, 2, 3, 4, 5]
    await topic_reader.read(lambda: [row["id"] for row in rows_of(collected)][-5:] == ids, 120)
    await topic_reader.stop()
    rows = rows_of(collected)
    assert {row["change"]["op"] for row in rows} == {"snapshot"}
    # Debezium may have begun a snapshot on its own, which the one that collect asks for ends.
    assert [row["id"] for row in rows[:-5]] == ids[: len(rows) - 5]


def rows_of(collected: Collected) -> list[dict[str, Any]]:
    """The data of the events so far."""
    return [orjson.loads(event.data or b"") for event in collected.events]


DOMAINS = {
    "digest": ("bytea", "\\x00ff", "AP8="),
    "other.seal": ("digest", "\\x00ff", "AP8="),
    "flag": ("bit(1)", "1", "1"),
    "flags": ("bit(12)", "101000010101", "101000010101"),
    "agreed": ("boolean", "t", True),
    "price": ("money", "12345678.50", "12345678.50"),
    "measure": ("numeric", "NaN", "NaN"),
    "label": ("text", "NAN", "NAN"),
    "labels": ("hstore", "a=>1", {"a": "1"}),
    "digests": ("bytea[]", '{"\\\\x00ff"}', ["AP8="]),
    "pair": ("composite", "(1,x)", "(1,x)"),
}
"""Domain to the type below it, text of a value, and the value in the data."""


async def test_values_of_domains_are_those_of_the_types_below_them(cdc: Systems) -> None:
    pipe = cdc.pipe("domains", [Table("domains", random.Random(1))])
    source = changes_of(cdc, "domains", ["domains"])
    collected = Collected()
    topic_reader = Reading(cdc, pipe.model_copy(update={"source": source}), collected)  # type: ignore[arg-type]
    await topic_reader.prepare()
    columns = [domain.rpartition(".")[2] for domain in DOMAINS]
    with psycopg.connect(cdc.source.url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA other")
        for domain, (base, _, _) in DOMAINS.items():
            if domain != "digest":
                connection.execute(f"CREATE DOMAIN {domain} AS {base}")
        fields = ", ".join(f"{name} {domain}" for name, domain in zip(columns, DOMAINS, strict=True))
        connection.execute(f"CREATE TABLE domains (id integer PRIMARY KEY, {fields})")
        casts = ", ".join(f"%s::text::{domain}" for domain in DOMAINS)
        domain_texts = [text for _, text, _ in DOMAINS.values()]
        insert = f"INSERT INTO domains VALUES (%s, {casts})"
        connection.execute(insert, [1, *domain_texts])
        await declare(Connector("equivalence", "domains", source))
        await topic_reader.start()
        await topic_reader.read(lambda: len(collected.events) >= 1, 120)
        connection.execute(insert, [2, *domain_texts])
        await topic_reader.read(lambda: len(collected.events) >= 2, 120)
    await topic_reader.stop()
    expected = {name: value for name, (_, _, value) in zip(columns, DOMAINS.values(), strict=True)}
    snapshot_row, inserted_row = (orjson.loads(event.data or b"{}") for event in collected.events)
    assert {name: snapshot_row.get(name) for name in columns} == expected | {"price": "12345678.5"}
    assert {name: inserted_row.get(name) for name in columns} == expected


def outcome_of(event: SourceEvent) -> tuple[str, Any]:
    """The operation and value of a change, or that it is refused and why."""
    if event.data is None:
        return "refused", parse_refusal(dict(event.headers)[REFUSED]).detail
    data = orjson.loads(event.data)
    return data["change"]["op"], data.get("v", "absent")


async def event_of(reader: ChangeReader, record: ConsumerRecord, source: DebeziumSource) -> SourceEvent:
    """The event of a record, for which types are looked up."""
    if unknown_types := reader.unknown_types([record]):
        reader.learn(await look_up_types(source, unknown_types, "types"))
    return reader(record)


async def test_the_table_of_types_is_true(cdc: Systems) -> None:
    table_names = [f"types{index}" for index in range(len(TYPES))]
    inserts = []
    with psycopg.connect(cdc.source.url) as connection:
        for name, row in zip(table_names, TYPES, strict=True):
            connection.execute(f"CREATE TABLE {name} (id integer PRIMARY KEY, v {row.sql})")
            inserts.append(f"INSERT INTO {name} VALUES (%s, %s::text::{row.sql})")
            connection.execute(inserts[-1], [1, row.example])
    source = changes_of(cdc, "types", table_names)
    await declare(Connector("equivalence", "types", source))
    reader = ChangeReader(source, "cluster", 1_000_000)
    consumer = AIOKafkaConsumer(
        source.topic, bootstrap_servers=cdc.kafka.bootstrap, auto_offset_reset="earliest",
        isolation_level="read_committed",
    )  # fmt: skip
    await consumer.start()
    read_values: list[tuple[str, Any]] = []
    for round_number in (1, 2):
        if round_number == 2:
            with psycopg.connect(cdc.source.url) as connection:
                for row, insert in zip(TYPES, inserts, strict=True):
                    connection.execute(insert, [2, row.example])
        while len(read_values) < round_number * len(TYPES):
            event = await event_of(reader, await consumer.getone(), source)
            if not event.skipped:
                read_values.append(outcome_of(event))
    await consumer.stop()
    for index, (outcome, value) in enumerate(read_values):
        row = TYPES[index % len(TYPES)]
        if row.outcome == "refused":
            assert outcome == "refused", row
            assert value.startswith("the column v "), row
        else:
            expected = None if row.value == "null" else row.value
            if row.sql == "money" and outcome == "snapshot":
                expected = "1234.5"
            assert (outcome, value) == (("snapshot", "insert")[index // len(TYPES)], expected), row
