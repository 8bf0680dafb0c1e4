"""Observe's minutes of sources and destinations other than HTTP, in five runs in which their processes are killed.

The minutes are compared with what the topics say: by id, from the position in the source to the receipt of each
destination, and with what is in each destination.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.exc import OperationalError
from tests.support.observe_principal import signed
from tests.support.stream_process import PARTITIONS, read_all

from hifi.pipe.model import Pipe
from hifi.record.fields import fields
from hifi.record.headers import DESTINATION, OUTCOME, PIPE, SEQ
from hifi_infra.connect.worker import ConnectWorker
from hifi_infra.kafka.stream_setup import put_in_force
from hifi_infra.mesh.mesh import Mesh, processes
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port
from hifi_infra.postgres.server import PASSWORD, PostgresServer

pytestmark = [pytest.mark.more, pytest.mark.timeout(3600)]

RUNS = 5
EVENTS = 300
"""Of each source in each run."""
KILLED = ("collect-1", "normalize-1", "egest-1", "lake-1")
WITHIN_S = 600
URL = "CONNECTORS_URL"
SOURCES = {"orders": "kafka", "items": "debezium"}
DESTINATIONS = ("topic", "table", "files", "lake")


@dataclass
class ConnectorMesh:
    """A mesh with two pipes, `orders` from a topic and `items` from a table; both to four kinds of destinations."""

    mesh: Mesh
    database: PostgresServer
    folder: Path
    producer: AIOKafkaProducer

    async def write(self, first: int, seconds: float) -> None:
        """Write events to both sources, spread over a time."""
        async with await psycopg.AsyncConnection.connect(self.database.url, autocommit=True) as connection:
            for number in range(first, first + EVENTS):
                row = {"id": number, "amount": number % 7}
                await self.producer.send("orders", orjson.dumps(row), key=b"%d" % (number % 20))
                await connection.execute("INSERT INTO items VALUES (%(id)s, %(amount)s)", row)
                await asyncio.sleep(seconds / EVENTS)
        await self.producer.flush()

    async def kill_each(self, chance: random.Random) -> None:
        """Kill each process once; the mesh starts it again."""
        for name in chance.sample(KILLED, len(KILLED)):
            await asyncio.sleep(chance.uniform(1, 5))
            await processes(self.mesh)[name].kill()

    async def written_ids(self, pipe: str, destination: str) -> Counter[int]:
        """Number of copies of each event in a destination."""
        reader: Callable[[str], Awaitable[Counter[int]]] = getattr(self, f"_in_{destination}")
        return await reader(pipe)

    async def _in_topic(self, pipe: str) -> Counter[int]:
        options = {"bootstrap_servers": self.mesh.bootstrap, "enable_auto_commit": False}
        async with AIOKafkaConsumer(**options, isolation_level="read_committed") as consumer:
            partitions = [TopicPartition(f"{pipe}-out", number) for number in range(2)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            arrivals: Counter[int] = Counter()
            while records := await consumer.getmany(timeout_ms=1000):
                arrivals.update(
                    orjson.loads(record.value)["id"] for batch in records.values() for record in batch
                )
            return arrivals

    async def _in_table(self, pipe: str) -> Counter[int]:
        async with await psycopg.AsyncConnection.connect(self.database.url) as connection:
            rows = await connection.execute(f"SELECT id FROM {pipe}_out")
            return Counter(number for (number,) in await rows.fetchall())

    async def _in_files(self, pipe: str) -> Counter[int]:
        files = (self.folder / pipe).rglob("[!.]*.ndjson")
        lines = [line for file in files for line in file.read_bytes().splitlines()]
        return Counter(orjson.loads(line)["data"]["id"] for line in lines)

    async def _in_lake(self, pipe: str) -> Counter[int]:
        return await asyncio.to_thread(self._lake_ids, pipe)

    def _lake_ids(self, pipe: str) -> Counter[int]:
        warehouse = self.folder / "lake"
        if not (warehouse / "catalog.db").exists():
            return Counter()
        catalog = SqlCatalog("hifi", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=warehouse.as_uri())
        try:
            rows = catalog.load_table(f"shop.{pipe}").scan(selected_fields=("id",)).to_arrow()
        except (NoSuchTableError, OperationalError):
            return Counter()
        return Counter(rows.column("id").to_pylist())

    async def minutes(self, pipe: str) -> list[dict[str, Any]]:
        """The closed minutes of a pipe, with what observe lists as lost."""
        async with (
            aiohttp.ClientSession(headers=signed(self.mesh.plan)) as session,
            session.get(f"{self.mesh.plan.console}/api/v1/pipes/{pipe}/minutes?last=60") as answer,
        ):
            minutes: list[dict[str, Any]] = (await answer.json())["minutes"]
            return minutes

    async def positions(self, pipe: str) -> tuple[Counter[bytes], dict[str, set[bytes]]]:
        """Ids of the events in `raw`, which are their positions in the source, counted; and by destination those with a
        final receipt of it."""
        topics, bootstrap = self.mesh.topics, self.mesh.bootstrap
        names: dict[bytes, bytes] = {}
        for record in await read_all(bootstrap, topics.raw):
            values = fields(record.headers)
            if values[PIPE] == pipe.encode():
                names[values[SEQ]] = values["ce_id"]
        delivered_positions: dict[str, set[bytes]] = {name: set() for name in DESTINATIONS}
        for record in await read_all(bootstrap, topics.receipts):
            values = fields(record.headers)
            if values.get(OUTCOME) == b"delivered" and values[SEQ] in names:
                delivered_positions[values[DESTINATION].decode()].add(names[values[SEQ]])
        return Counter(names.values()), delivered_positions


def pipe(name: str, source: Mapping[str, Any], folder: Path, bootstrap: str) -> Pipe:
    columns = {"id": "id", "amount": "amount"}
    types = {"id": "int", "amount": "int"}
    out_topic = f"{name}-out"
    table = {"url": {"env": URL}, "table": f"{name}_out", "mode": "append", "columns": columns}
    lake = {"warehouse": str(folder / "lake"), "table": f"shop.{name}", "columns": types}
    destinations = [
        {"name": "topic", "kind": "kafka", "settings": {"bootstrap": bootstrap, "topic": out_topic}},
        {"name": "table", "kind": "postgres", "settings": table},
        {"name": "files", "kind": "objects", "settings": {"folder": str(folder / name)}},
        {"name": "lake", "kind": "iceberg", "settings": lake},
    ]
    declaration = {"pipe": name, "source": source, "enrich": {"fields": types}, "destinations": destinations}
    return Pipe.model_validate(declaration)


@pytest.fixture
async def connector_mesh(tmp_path: Path) -> AsyncIterator[ConnectorMesh]:
    database = PostgresServer("PostgreSQL", tmp_path / "postgres.log", {"wal_level": "logical"})
    await database.start()
    settings = {"HIFI_OBSERVE_SETTLE_S": "20", "HIFI_LAKE_INTERVAL_S": "2", "HIFI_LAKE_MASTER": "local[1]"}
    plan = Plan(
        tmp_path / "data",
        port=free_port(),
        console_port=free_port(),
        partitions=PARTITIONS,
        scale={"observe": 1, "collect": 1, "lake": 1},
        env={**settings, URL: database.url},
    )
    mesh = Mesh(plan)
    mesh.prepare()
    worker: ConnectWorker | None = None
    try:
        await mesh.start()
        worker = ConnectWorker(plan.data / "connect", mesh.bootstrap, free_port())
        await worker.start()
        await _prepare(mesh.bootstrap, database)
        password = tmp_path / "password"
        password.write_text(PASSWORD)
        kafka = {"kind": "kafka", "bootstrap": mesh.bootstrap, "topic": "orders"}
        address = {"host": "127.0.0.1", "port": database.port, "name": "postgres", "user": "postgres"}
        debezium = {
            "kind": "debezium",
            "connect": worker.url,
            "bootstrap": mesh.bootstrap,
            "topic": "changes.items",
            "database": address | {"password_file": str(password)},
            "tables": ["public.items"],
        }
        pipes = [
            pipe("orders", kafka, tmp_path, mesh.bootstrap),
            pipe("items", debezium, tmp_path, mesh.bootstrap),
        ]
        await put_in_force(mesh.bootstrap, mesh.topics, pipes, variables={**os.environ, **plan.env})
        await mesh.wait_ready(WITHIN_S)
        async with AIOKafkaProducer(bootstrap_servers=mesh.bootstrap, acks="all") as producer:
            yield ConnectorMesh(mesh, database, tmp_path, producer)
    finally:
        await mesh.kill()
        if worker is not None:
            await worker.stop()
        await database.remove()


async def _prepare(bootstrap: str, database: PostgresServer) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, 2, 1) for name in ("orders", "orders-out", "items-out")])
    await admin.close()
    async with await psycopg.AsyncConnection.connect(database.url) as connection:
        await connection.execute("CREATE TABLE items (id integer PRIMARY KEY, amount integer)")
        for name in SOURCES:
            await connection.execute(
                f"CREATE TABLE {name}_out (id integer, amount integer, hifi_log uuid, hifi_partition integer,"
                " hifi_offset bigint, UNIQUE (hifi_log, hifi_partition, hifi_offset))"
            )


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """Poll a condition for a limited time."""
    async with asyncio.timeout(WITHIN_S):
        while not await condition():
            await asyncio.sleep(1)


async def test_minutes_of_sources_and_destinations_have_no_false_loss_in_five_runs_with_faults(
    connector_mesh: ConnectorMesh,
) -> None:
    for run in range(RUNS):
        total = (run + 1) * EVENTS
        await asyncio.gather(
            connector_mesh.write(run * EVENTS, 20), connector_mesh.kill_each(random.Random(run))
        )
        for name in SOURCES:
            for destination in DESTINATIONS:
                await until(partial(_has_written, connector_mesh, name, destination, total))
            await until(partial(_closed, connector_mesh, name, total))
            await _check(connector_mesh, name, total)
            print(f"run {run + 1}: {name}: {await _summary(connector_mesh, name)}")


async def _has_written(connector_mesh: ConnectorMesh, name: str, destination: str, total: int) -> bool:
    return len(await connector_mesh.written_ids(name, destination)) >= total


async def _closed(connector_mesh: ConnectorMesh, name: str, total: int) -> bool:
    """Whether closed minutes have all events, at each destination. A loss is not waited for."""
    minutes = await connector_mesh.minutes(name)
    assert sum(minute["lost"] for minute in minutes) == 0, [
        minute["lost_ids"] for minute in minutes if minute["lost"]
    ]
    delivered_counts = _delivered(minutes)
    return all(delivered_counts[destination] >= total for destination in DESTINATIONS)


def _delivered(minutes: list[dict[str, Any]]) -> Counter[str]:
    delivered_counts: Counter[str] = Counter()
    for minute in minutes:
        for destination in minute["destinations"]:
            delivered_counts[destination["destination"]] += destination["delivered"]
    return delivered_counts


async def _check(connector_mesh: ConnectorMesh, name: str, total: int) -> None:
    """Compare the minutes with the topics and with the destinations."""
    minutes = await connector_mesh.minutes(name)
    positions, delivered_positions = await connector_mesh.positions(name)
    assert len(positions) == total, "each position of the source was accepted"
    for destination, delivered in delivered_positions.items():
        assert delivered == set(positions), f"each position has a receipt of {destination}"
    for destination in DESTINATIONS:
        assert await connector_mesh.written_ids(name, destination) == Counter(dict.fromkeys(range(total), 1))
    assert _delivered(minutes) == Counter(dict.fromkeys(DESTINATIONS, total))
    assert sum(minute["in"] for minute in minutes) == positions.total(), "copies of the source are counted"
    for state in ("lost", "in_flight", "waiting", "parked", "dead"):
        assert sum(minute[state] for minute in minutes) == 0, state


async def _summary(connector_mesh: ConnectorMesh, name: str) -> str:
    positions, _ = await connector_mesh.positions(name)
    copies = positions.total() - len(positions)
    minutes = await connector_mesh.minutes(name)
    return f"{len(positions):,} positions, {copies:,} copies, 0 lost by {len(minutes)} minutes"
