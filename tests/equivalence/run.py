"""Runs seeds: PostgreSQL, Debezium in Kafka Connect, what reads its changes, and what writes them to PostgreSQL.

Between them stands a delivery that is worse than any mesh: events are written in batches of random sizes, many of them
late, in any order and twice. What a mesh adds, and kills of its processes, are in `hifi demo --cdc --kill`.
"""

import asyncio
import contextlib
import os
import random
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import psycopg
from aiokafka import AIOKafkaConsumer

from equivalence.columns import TYPES
from equivalence.tables import Table, change_at_random, rows_of
from hifi.delivery.installed_kinds import read_settings
from hifi.delivery.kind import DestinationWriter, OutboundEvent, WriterContext
from hifi.pipe.model import Pipe
from hifi.record.headers import REFUSED
from hifi.record.refusal import parse_refusal
from hifi.runtime.errors import RejectedEvents, Retryable
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source.changes import ChangeReader
from hifi_debezium.source.connector import Connector
from hifi_infra.connect.worker import ConnectWorker
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.mesh.plan import CREDENTIALS
from hifi_infra.ports import free_port
from hifi_infra.postgres.server import PASSWORD, PostgresServer

_TABLES = 3
_PARTITIONS = 4
_QUIET_S = 20.0
_START_S = 120.0
_URL = "EQUIVALENCE_URL"
_LOG = "0a" * 16
_LATE = 0.1
"""Share of events that are written late, and of batches in another order."""
_TWICE = 0.02
"""Share of events that are written again."""
_SNAPSHOT = 0.1
"""Share of the changes that are made before the snapshot."""


class Systems:
    """The systems that all seeds use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kafka = KafkaCluster(folder / "kafka")
        self.source = PostgresServer(
            "the source", folder / "source.log", {"wal_level": "logical", "fsync": "off"}
        )
        self.target = PostgresServer("the target", folder / "target.log", {"fsync": "off"})
        self.worker = ConnectWorker(folder / "connect", "", 0)

    async def start(self) -> None:
        """Start all."""
        await asyncio.gather(self.source.start(), self.target.start(), self.kafka.start())
        self.worker = ConnectWorker(self.folder / "connect", self.kafka.bootstrap, free_port())
        await self.worker.start()
        os.environ["HIFI_CONNECT_CREDENTIALS_FILE"] = str(self.folder / "connect" / CREDENTIALS)
        (self.folder / "password").write_text(PASSWORD)
        for url in (self.source.url, self.target.url):
            with psycopg.connect(url) as connection:
                connection.execute(TYPES)

    async def stop(self) -> None:
        """End all."""
        await self.worker.stop()
        await self.kafka.kill()
        for server in (self.source, self.target):
            await server.remove()

    def pipe(self, name: str, tables: list[Table]) -> Pipe:
        """The pipe of a seed, with a destination for each table."""
        database = {
            "host": "127.0.0.1", "port": self.source.port, "name": "postgres", "user": "postgres",
            "password_file": str(self.folder / "password"),
        }  # fmt: skip
        source = {
            "kind": "debezium", "connect": self.worker.url, "bootstrap": self.kafka.bootstrap,
            "topic": f"changes.{name}", "database": database, "tables": [f"public.{table.name}" for table in tables],
        }  # fmt: skip
        destinations = [
            {
                "name": table.name,
                "kind": "postgres",
                "settings": {
                    "url": {"env": _URL},
                    "table": table.name,
                    "columns": {column.name: column.name for column in (*table.key, *table.columns)},
                    "key": [column.name for column in table.key],
                    "delete_when": {"change.op": "delete"},
                    "tombstones": f"{table.name}_gone",
                },
            }
            for table in tables
        ]
        return Pipe.model_validate({"pipe": name, "source": source, "destinations": destinations})


@contextlib.asynccontextmanager
async def systems(folder: Path) -> AsyncIterator[Systems]:
    """The systems while the block runs."""
    made = Systems(folder)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


class Delivery:
    """Writes events late, in any order and twice."""

    def __init__(self, pipe: Pipe, made: random.Random) -> None:
        self._made = made
        self._writers: dict[str, DestinationWriter] = {}
        for declared in pipe.destinations:
            kind, settings = read_settings(declared)
            assert kind.complete is not None
            completed = kind.settings.model_validate(kind.complete(declared, pipe, settings))
            self._writers[f"public.{declared.name}"] = kind.open(
                completed, WriterContext("equivalence", pipe.pipe, declared.name, 4, 30.0)
            )
        self._offsets: Counter[int] = Counter()
        self._late: list[tuple[str, OutboundEvent]] = []
        self.refused: list[str] = []

    def add(self, events: list[Any]) -> None:
        """Give events a position, in their order."""
        for event in events:
            headers = dict(event.headers)
            if event.data is None:
                self.refused.append(parse_refusal(headers[REFUSED]).detail)
                continue
            partition = zlib.crc32(event.key) % _PARTITIONS
            self._offsets[partition] += 1
            table = headers["ce_subject"].decode()
            sent = OutboundEvent(
                event.data, "application/json", {}, event.key, _LOG, partition, self._offsets[partition], 0
            )
            self._late.append((table, sent))

    async def write(self, *, all_of_them: bool = False) -> None:
        """Write most of what waits; what is late waits on, and is written in another order."""
        waiting, self._late = self._late, []
        now = list[tuple[str, OutboundEvent]]()
        for pair in waiting:
            is_late = not all_of_them and self._made.random() < _LATE
            if not is_late:
                now.append(pair)
            if is_late or (not all_of_them and self._made.random() < _TWICE):
                self._late.append(pair)
        if self._made.random() < _LATE or all_of_them:
            self._made.shuffle(now)
        by_table: dict[str, list[OutboundEvent]] = {}
        for table, event in now:
            by_table.setdefault(table, []).append(event)
        for table, events in by_table.items():
            begin = 0
            while begin < len(events):
                size = self._made.choice([1, 20, 100])
                await self._batch(table, events[begin : begin + size])
                begin += size

    async def _batch(self, table: str, batch: list[OutboundEvent]) -> None:
        try:
            await self._writers[table].write(batch)
        except RejectedEvents as why:
            self.refused += [f"{table}: {of.reason}: {of.detail}" for of in why.events.values()]
            rest = [event for at, event in enumerate(batch) if at not in why.events]
            if rest:
                await self._batch(table, rest)
        except Retryable:
            if len(batch) > 1:
                for event in batch:
                    await self._batch(table, [event])
            else:
                self._late.append((table, batch[0]))

    async def finish(self) -> None:
        """Write all that waits."""
        for _ in range(20):
            if not self._late:
                break
            await self.write(all_of_them=True)
        self.refused += [f"{table}: never written" for table, _ in self._late]
        for writer in self._writers.values():
            await writer.close()


async def run_seed(on: Systems, seed: int, changes: int, tell: Callable[[str], None]) -> dict[str, int]:
    """Run one seed: how many changes, rows, differences and refused events.

    Raises:
        HifiError: a system failed.
    """
    made = random.Random(seed)
    name = f"s{seed}"
    tables = [Table(f"{name}t{at}", made) for at in range(_TABLES)]
    for url, is_source in ((on.source.url, True), (on.target.url, False)):
        with psycopg.connect(url) as connection:
            for table in tables:
                connection.execute(table.create(source=is_source))
    os.environ[_URL] = on.target.url
    pipe = on.pipe(name, tables)
    assert isinstance(pipe.source, DebeziumSource)
    done = await asyncio.to_thread(change_at_random, on.source.url, tables, int(changes * _SNAPSHOT), made)
    snapshot = sum(len(rows_of(on.source.url, table)) for table in tables)
    connector = Connector("equivalence", name, pipe.source)
    await declare(connector)
    reader = ChangeReader(pipe.source, "cluster", 10_000_000)
    delivery = Delivery(pipe, made)
    consumer = AIOKafkaConsumer(
        pipe.source.topic, bootstrap_servers=on.kafka.bootstrap, auto_offset_reset="earliest",
        isolation_level="read_committed", enable_auto_commit=False, max_partition_fetch_bytes=8_000_000,
    )  # fmt: skip
    await consumer.start()
    try:
        seen = await _read(consumer, reader, delivery, lambda count: count >= snapshot, _START_S)
        live = asyncio.create_task(
            asyncio.to_thread(
                change_at_random,
                on.source.url,
                tables,
                changes - done,
                made.__class__(seed + 1),
                first=1_000_000,
            )
        )
        read = await _read(consumer, reader, delivery, lambda _: live.done(), _QUIET_S * 10)
        expected = await live
        read += await _read(consumer, reader, delivery, lambda count: read + count >= expected, _QUIET_S)
        read += await _read(consumer, reader, delivery, lambda _: False, 2.0)
    finally:
        await consumer.stop()
    await delivery.finish()
    result = {"seed": seed, "changes": done + expected, "read": seen + read, "rows": 0, "differences": 0}
    for table in tables:
        source, target = rows_of(on.source.url, table), rows_of(on.target.url, table)
        result["rows"] += len(source)
        for key in source.keys() | target.keys():
            if source.get(key) != target.get(key):
                result["differences"] += 1
                if result["differences"] <= 5:
                    tell(f"   {table.name} {key}: {_difference(table, source.get(key), target.get(key))}")
    result["refused"] = len(delivery.refused)
    for text, count in Counter(delivery.refused).most_common(5):
        tell(f"   refused {count}: {text}")
    await _delete(on, connector)
    return result


async def declare(connector: Connector) -> None:
    end_s = time.monotonic() + _START_S
    while True:
        try:
            return await connector.declare()
        except Retryable:
            if time.monotonic() > end_s:
                raise
            await asyncio.sleep(1)


async def _delete(on: Systems, connector: Connector) -> None:
    await connector._request("DELETE", f"/connectors/{connector.name}")
    slot = connector.config()["slot.name"]
    for _ in range(50):
        with psycopg.connect(on.source.url, autocommit=True) as connection:
            try:
                connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
                return
            except psycopg.errors.ObjectInUse:
                await asyncio.sleep(0.2)


async def _read(
    consumer: AIOKafkaConsumer,
    reader: ChangeReader,
    delivery: Delivery,
    enough: Callable[[int], bool],
    quiet_s: float,
) -> int:
    """Read and write changes until there are enough, or none has come for a while."""
    count, last_s = 0, time.monotonic()
    while not enough(count) and time.monotonic() - last_s < quiet_s:
        for records in (await consumer.getmany(timeout_ms=200, max_records=500)).values():
            delivery.add([reader(record) for record in records])
            count += len(records)
            last_s = time.monotonic()
        await delivery.write()
    return count


def _difference(table: Table, source: dict[str, Any] | None, target: dict[str, Any] | None) -> str:
    if source is None or target is None:
        return "only at the " + ("destination" if source is None else "source")
    kinds = {column.name: column.kind.sql for column in (*table.key, *table.columns)}
    return orjson.dumps(
        [
            f"{name} ({kinds[name]}): {str(source[name])[:60]!r} is {str(target[name])[:60]!r}"
            for name in source
            if source[name] != target[name]
        ]
    ).decode()
