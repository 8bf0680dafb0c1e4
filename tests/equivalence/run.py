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
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import psycopg
from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.errors import UnknownTopicOrPartitionError
from tests.equivalence.columns import TYPES
from tests.equivalence.tables import Table, change_at_random, rows_of

from hifi.delivery.installed_kinds import read_settings
from hifi.delivery.kind import DestinationWriter, OutboundEvent, WriterContext
from hifi.pipe.model import ConnectorDestination, Pipe
from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.kind import SourceContext
from hifi.record.headers import REFUSED
from hifi.record.refusal import parse_refusal
from hifi.runtime.errors import RejectedEvents, Retryable
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source.change_events import ChangeEvents
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
_STUCK_S = 40.0
TARGET_URL = "EQUIVALENCETARGET_URL"
_LOG = "0a" * 16
_LATE = 0.1
"""Share of events that are written late, and of batches in another order."""
_TWICE = 0.02
"""Share of events that are written again."""
BEFORE = 0.1
"""Share of the changes that are made before the snapshot."""
PHASES = ((0.5, 2, False), (0.1, 1, True), (0.3, 1, False))
"""Share of the changes, how often a table is truncated meanwhile, and whether the slot is lost before."""


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
        self._supervising: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start all."""
        await asyncio.gather(self.source.start(), self.target.start(), self.kafka.start())
        self.worker = ConnectWorker(self.folder / "connect", self.kafka.bootstrap, free_port())
        await self.worker.start()
        self._supervising = asyncio.create_task(self.worker.supervise(_STUCK_S))
        self.write_secrets()
        for url in (self.source.url, self.target.url):
            with psycopg.connect(url) as connection:
                connection.execute(TYPES)

    def write_secrets(self) -> None:
        """Write the password of the databases, and name the file with the login of Kafka Connect."""
        os.environ["HIFI_CONNECT_CREDENTIALS_FILE"] = str(self.folder / "connect" / CREDENTIALS)
        (self.folder / "password").write_text(PASSWORD)

    async def stop(self) -> None:
        """End all."""
        if self._supervising is not None:
            self._supervising.cancel()
        await self.worker.stop()
        await self.kafka.kill()
        for server in (self.source, self.target):
            await server.remove()

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers of Kafka."""
        return self.kafka.bootstrap

    def pipe(self, name: str, tables: list[Table]) -> Pipe:
        """The pipe of a seed, with a destination for each table."""
        database = {
            "host": "127.0.0.1", "port": self.source.port, "name": "postgres", "user": "postgres",
            "password_file": str(self.folder / "password"),
        }  # fmt: skip
        source = {
            "kind": "debezium", "connect": self.worker.url, "bootstrap": self.bootstrap,
            "topic": f"changes.{name}", "database": database, "tables": [f"public.{table.name}" for table in tables],
        }  # fmt: skip
        destinations = [
            {
                "name": table.name,
                "kind": "postgres",
                "settings": {
                    "url": {"env": TARGET_URL},
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
    cdc_systems = Systems(folder)
    try:
        await cdc_systems.start()
        yield cdc_systems
    finally:
        await cdc_systems.stop()


class Delivery:
    """Writes events late, in any order and twice."""

    def __init__(self, pipe: Pipe, rng: random.Random) -> None:
        self._rng = rng
        self._writers: dict[str, DestinationWriter] = {}
        for destination in pipe.destinations:
            assert isinstance(destination, ConnectorDestination)
            kind, settings = read_settings(destination)
            assert kind.complete is not None
            completed = kind.settings.model_validate(kind.complete(destination, pipe, settings))
            self._writers[f"public.{destination.name}"] = kind.open(
                completed, WriterContext("equivalence", pipe.pipe, destination.name, 4, 30.0)
            )
        self._offsets: Counter[int] = Counter()
        self._late: list[tuple[str, OutboundEvent]] = []
        self.refused: list[str] = []

    def add(self, events: Sequence[Any]) -> None:
        """Give events a position, in their order."""
        for event in events:
            headers = dict(event.headers)
            if event.data is None:
                self.refused.append(parse_refusal(headers[REFUSED]).detail)
                continue
            partition = zlib.crc32(event.key) % _PARTITIONS
            self._offsets[partition] += 1
            table = headers["ce_subject"].decode()
            outbound_event = OutboundEvent(
                event.data, "application/json", {}, event.key, _LOG, partition, self._offsets[partition], 0
            )
            self._late.append((table, outbound_event))

    async def write(self, *, is_last: bool = False) -> None:
        """Write most of what waits; what is late waits on, and is written in another order."""
        waiting, self._late = self._late, []
        now = list[tuple[str, OutboundEvent]]()
        for pair in waiting:
            is_late = not is_last and self._rng.random() < _LATE
            if not is_late:
                now.append(pair)
            if is_late or (not is_last and self._rng.random() < _TWICE):
                self._late.append(pair)
        if self._rng.random() < _LATE or is_last:
            self._rng.shuffle(now)
        events_by_table: dict[str, list[OutboundEvent]] = {}
        for table, event in now:
            events_by_table.setdefault(table, []).append(event)
        for table, events in events_by_table.items():
            start = 0
            while start < len(events):
                size = self._rng.choice([1, 20, 100])
                await self.batch(table, events[start : start + size])
                start += size

    async def batch(self, table: str, batch: list[OutboundEvent]) -> None:
        """Write events at once, or each by itself."""
        try:
            await self._writers[table].write(batch)
        except RejectedEvents as rejection:
            self.refused += [
                f"{table}: {refusal.reason}: {refusal.detail}" for refusal in rejection.events.values()
            ]
            remaining = [event for index, event in enumerate(batch) if index not in rejection.events]
            if remaining:
                await self.batch(table, remaining)
        except Retryable:
            if len(batch) > 1:
                for event in batch:
                    await self.batch(table, [event])
            else:
                self._late.append((table, batch[0]))

    async def write_all(self) -> None:
        """Write all that waits, as far as it can be written."""
        for _ in range(20):
            if not self._late:
                break
            await self.write(is_last=True)

    async def finish(self) -> None:
        """Write all that waits, and end."""
        await self.write_all()
        self.refused += [f"{table}: never written" for table, _ in self._late]
        for writer in self._writers.values():
            await writer.close()


async def run_seed(
    cdc_systems: Systems, seed: int, changes: int, report: Callable[[str], None]
) -> dict[str, int]:
    """Run one seed: how many changes, rows, differences and refused events.

    Rows change before, in and after the snapshot, and while the slot is lost; a table is truncated now and then.

    Raises:
        HifiError: a system failed.
    """
    rng = random.Random(seed)
    name = f"s{seed}"
    tables = make_tables(cdc_systems, name, rng)
    os.environ[TARGET_URL] = cdc_systems.target.url
    pipe = cdc_systems.pipe(name, tables)
    assert isinstance(pipe.source, DebeziumSource)
    change_count = await asyncio.to_thread(
        change_at_random, cdc_systems.source.url, tables, int(changes * BEFORE), rng
    )
    connector = Connector("equivalence", name, pipe.source)
    delivery = Delivery(pipe, rng)
    topic_reader = Reading(cdc_systems, pipe, delivery)
    await topic_reader.prepare()
    await declare(connector)
    await topic_reader.start()
    try:
        for phase, (share, truncates, loses_slot) in enumerate(PHASES, 1):
            if loses_slot:
                await lose_slot(cdc_systems, connector)
            live_task = asyncio.create_task(
                asyncio.to_thread(
                    change_at_random,
                    cdc_systems.source.url,
                    tables,
                    int(changes * share),
                    random.Random(rng.random()),
                    first=phase * changes * 10,
                    truncates=truncates,
                )
            )
            await topic_reader.read(live_task.done, _QUIET_S * 10)
            change_count += await live_task
            if loses_slot:
                await resume(connector)
        equal = False
        while not equal and topic_reader.quiet_s < _START_S:
            await topic_reader.read(lambda: False, 3.0)
            await delivery.write_all()
            equal = not differences(cdc_systems, tables, lambda _: None)
    finally:
        await topic_reader.stop()
    await delivery.finish()
    result = {"seed": seed, "changes": change_count, "read": topic_reader.count, "swept": topic_reader.swept}
    result["rows"] = sum(len(rows_of(cdc_systems.source.url, table)) for table in tables)
    result["differences"] = differences(cdc_systems, tables, report)
    result["refused"] = len(delivery.refused)
    for text, count in Counter(delivery.refused).most_common(5):
        report(f"   refused {count}: {text}")
    await delete_connector(cdc_systems, connector)
    return result


def make_tables(cdc_systems: Systems, name: str, rng: random.Random, *, full: bool = False) -> list[Table]:
    """Create random tables at source and destination."""
    tables = [Table(f"{name}t{number}", rng, full=full) for number in range(_TABLES)]
    for url, is_source in ((cdc_systems.source.url, True), (cdc_systems.target.url, False)):
        with psycopg.connect(url) as connection:
            for table in tables:
                connection.execute(table.create(source=is_source))
    return tables


def differences(cdc_systems: Systems, tables: list[Table], report: Callable[[str], None]) -> int:
    """How many rows differ between source and destination."""
    count = 0
    for table in tables:
        source, target = rows_of(cdc_systems.source.url, table), rows_of(cdc_systems.target.url, table)
        for key in source.keys() | target.keys():
            if source.get(key) != target.get(key):
                count += 1
                if count <= 5:
                    report(f"   {table.name} {key}: {_difference(table, source.get(key), target.get(key))}")
    return count


class Reading:
    """Reads the changes of a pipe as collect does, and gives them to a delivery."""

    def __init__(self, cdc_systems: Systems, pipe: Pipe, delivery: Delivery) -> None:
        assert isinstance(pipe.source, DebeziumSource)
        self._systems, self._topic = cdc_systems, pipe.source.topic
        self._delivery = delivery
        self._events = ChangeEvents(pipe.source, SourceContext("equivalence", pipe.pipe, 10_000_000))
        self._event = self._events.event_reader("cluster")
        self._consumer = AIOKafkaConsumer(
            self._topic, bootstrap_servers=cdc_systems.bootstrap, auto_offset_reset="earliest",
            isolation_level="read_committed", enable_auto_commit=False, max_partition_fetch_bytes=8_000_000,
            metadata_max_age_ms=1_000,
        )  # fmt: skip
        self._last_s = time.monotonic()
        self.count = self.swept = 0

    async def prepare(self) -> None:
        """Create the topic of the keys."""
        await self._events._keys.provide()

    async def start(self) -> None:
        """Connect, as soon as the connector has made its topic."""
        async with asyncio.timeout(_START_S):
            while True:
                try:
                    await self._consumer.start()
                    return
                except UnknownTopicOrPartitionError:
                    await asyncio.sleep(0.5)

    async def stop(self) -> None:
        """Disconnect."""
        await self._consumer.stop()
        await self._events.close()

    @property
    def quiet_s(self) -> float:
        """Since when nothing has come."""
        return time.monotonic() - self._last_s

    async def read(self, is_done: Callable[[], bool], quiet_s: float) -> None:
        """Read and write changes until there are enough, or none has come for a while."""
        begin_s = time.monotonic()
        while not is_done() and time.monotonic() - max(self._last_s, begin_s) < quiet_s:
            for records in (await self._consumer.getmany(timeout_ms=200, max_records=500)).values():
                await self._give(records)
                self._last_s = time.monotonic()
            await self._delivery.write()

    async def _give(self, records: Sequence[ConsumerRecord]) -> None:
        await self._events.prepare(records)
        events = list[SourceEvent]()
        for record in records:
            event = self._event(record)
            if event.followed:
                await self._remember(events)
                events = []
                while following := await self._events.following(record, event):
                    for _, deletes in following:
                        self._delivery.add(deletes)
                        self.swept += len(deletes)
                    await self._events.following_written()
            events.append(event)
        await self._remember(events)

    async def _remember(self, events: list[SourceEvent]) -> None:
        remembered = self._events.remember(events)
        if remembered is not None:
            await remembered
        self._delivery.add([event for event in events if not event.skipped])
        self.count += len(events)


async def lose_slot(cdc_systems: Systems, connector: Connector) -> None:
    """Stop the connector and drop its slot, so that it misses changes."""
    await request(connector, "PUT", "/stop")
    await _drop_slot(cdc_systems, connector)


async def declare(connector: Connector) -> None:
    end_s = time.monotonic() + _START_S
    while True:
        try:
            return await connector.declare()
        except Retryable:
            if time.monotonic() > end_s:
                raise
            await asyncio.sleep(1)


async def resume(connector: Connector) -> None:
    """Have a connector go on that `lose_slot` has stopped."""
    await request(connector, "PUT", "/resume")


async def request(connector: Connector, method: str, path: str = "") -> None:
    """Send a request for a connector until Kafka Connect accepts it."""
    end_s = time.monotonic() + _START_S
    while True:
        with contextlib.suppress(Retryable):
            status, _ = await connector._request(method, f"/connectors/{connector.name}{path}")
            if status < 300 or (method == "DELETE" and status == 404):
                return
        if time.monotonic() > end_s:
            raise Retryable(f"Kafka Connect does not accept {method} {path}")
        await asyncio.sleep(1)


async def delete_connector(cdc_systems: Systems, connector: Connector) -> None:
    """Delete a connector and its slot."""
    await request(connector, "DELETE")
    await _drop_slot(cdc_systems, connector)


async def _drop_slot(cdc_systems: Systems, connector: Connector) -> None:
    drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
    end_s = time.monotonic() + _START_S
    while True:
        with psycopg.connect(cdc_systems.source.url, autocommit=True) as connection:
            try:
                connection.execute(drop, [connector.config()["slot.name"]])
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > end_s:
                    raise
                await asyncio.sleep(0.2)
            else:
                return


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
