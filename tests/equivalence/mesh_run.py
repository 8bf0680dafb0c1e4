"""Runs seeds through a mesh whose processes are killed: in the snapshot, while rows change, and while they arrive.

The rows go from PostgreSQL through Debezium, collect, normalize, enrich and egest or lake to PostgreSQL or Iceberg.
"""

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import psycopg
from tests.equivalence.columns import TYPES
from tests.equivalence.run import (
    BEFORE,
    PHASES,
    TARGET_URL,
    Delivery,
    Systems,
    delete_connector,
    differences,
    lose_slot,
    make_tables,
    resume,
)
from tests.equivalence.tables import Column, Table, change_at_random

from hifi.delivery.kind import OutboundEvent
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish
from hifi.pipe.revision import deletion_record
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source.connector import Connector
from hifi_infra.connect.worker import ConnectWorker
from hifi_infra.kafka.stream_setup import put_in_force
from hifi_infra.mesh.mesh import Mesh, processes
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

_READY_S = 600.0
_QUIET_S = 300.0
"""Rows that still differ are lost after so long in which their number did not change and the mesh was ready."""
_STANDS_S = 1200.0
"""The same, ready or not."""
_CHANGES_S = 90.0
_BETWEEN_S = (0.5, 4.0)
"""Time between two kills."""
_LOOK_S = 3.0
_JSON = ("json", "jsonb", "hstore")
_SLOW = {"max.batch.size": "5", "max.queue.size": "10"}
"""Settings of a connector with which a snapshot takes seconds: it ends a transaction after so few rows."""
_SNAPSHOT_BY = ("Kafka Connect", "the source", "broker-1", "collect-1")
"""Processes without which a snapshot stops; they are killed first when one begins."""


class MeshSystems(Systems):
    """A mesh, its databases and Kafka Connect."""

    def __init__(self, folder: Path, destination_kind: str) -> None:
        super().__init__(folder)
        self.destination_kind = destination_kind
        port = free_port()
        services = {"collect": 1, "lake": 1} if destination_kind == "iceberg" else {"collect": 1}
        env = {TARGET_URL: self.target.url, "HIFI_LAKE_INTERVAL_S": "2", "HIFI_LAKE_MASTER": "local[1]"}
        self.mesh = Mesh(
            Plan(
                folder / "mesh",
                stream="equivalence",
                port=port,
                console_port=free_port(but={port}),
                scale=services,
                env=env,
            )
        )
        self.supervising: asyncio.Task[None] | None = None

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers of Kafka."""
        return self.mesh.bootstrap

    async def start(self) -> None:
        """Start all."""
        self.write_secrets()  # before the mesh starts, which inherits the environment
        await asyncio.gather(self.source.start(), self.target.start(), self.mesh.start())
        self.worker = ConnectWorker(self.folder / "connect", self.mesh.bootstrap, free_port())
        await self.worker.start()
        self.supervising = asyncio.create_task(self.worker.supervise())
        for url in (self.source.url, self.target.url):
            with psycopg.connect(url) as connection:
                connection.execute(TYPES)
        await self.mesh.wait_ready(_READY_S)

    async def stop(self) -> None:
        """End all."""
        if self.supervising is not None:
            self.supervising.cancel()
        await self.worker.stop()
        await self.mesh.kill()
        for server in (self.source, self.target):
            await server.remove()

    async def publish(self, *pipes: Pipe) -> None:
        """Publish pipes."""
        variables = {**os.environ, **self.mesh.plan.env}
        await put_in_force(self.bootstrap, self.mesh.topics, list(pipes), variables=variables)

    def kills(self) -> dict[str, Callable[[], Any]]:
        """Name to the call that kills it; all of them come back."""
        worker = self.worker.process
        assert worker is not None
        kill_actions: dict[str, Callable[[], Any]] = {
            name: process.kill for name, process in processes(self.mesh).items() if process.running
        }
        kill_actions["Kafka Connect"] = worker.kill
        for server in (self.source, self.target):
            kill_actions[server.process.name if server.process else ""] = partial(_restart, server)
        return kill_actions

    def routed(self, pipe: Pipe, tables: list[Table], *, slow: bool) -> Pipe:
        """A pipe with a destination for each table, which gets the changes of that one."""
        declared = pipe.model_dump(mode="json", exclude_unset=True)
        declared["source"]["settings"] = _SLOW if slow else {}
        declared["normalize"] = {"fields": {"table_of_row": "change.table"}}
        for destination, table in zip(declared["destinations"], tables, strict=True):
            destination["when"] = f"table_of_row = 'public.{table.name}'"
            if self.destination_kind == "iceberg":
                columns = dict.fromkeys((column.name for column in (*table.key, *table.columns)), "string")
                destination["kind"] = "iceberg"
                destination["settings"] = {
                    "warehouse": str(self.folder / "lake"),
                    "table": f"equivalence.{table.name}",
                    "mode": "upsert",
                    "key": [column.name for column in table.key],
                    "delete_when": {"change.op": "delete"},
                    "columns": columns,
                }
        declared["enrich"] = {"fields": {"table_of_row": "string"}}
        return Pipe.model_validate(declared)


async def _restart(server: Any) -> None:
    await server.process.kill()
    await server.restart()


@contextlib.asynccontextmanager
async def mesh_systems(folder: Path, destination_kind: str) -> AsyncIterator[MeshSystems]:
    """The systems while the block runs."""
    cdc_systems = MeshSystems(folder, destination_kind)
    try:
        await cdc_systems.start()
        yield cdc_systems
    finally:
        await cdc_systems.stop()


async def run_seeds(
    cdc_systems: MeshSystems, seeds: list[int], changes: int, report: Callable[[str], None], *, kill: bool
) -> list[dict[str, int]]:
    """Run seeds at the same time; their processes are killed in the order that the first seed gives.

    Raises:
        HifiError: a system failed.
    """
    rng = random.Random(seeds[0])
    os.environ[TARGET_URL] = cdc_systems.target.url
    seed_runs = [_Seed(cdc_systems, seed, changes, slow=kill) for seed in seeds]
    for seed_run in seed_runs:
        await asyncio.to_thread(seed_run.change, BEFORE, 0, 0)
    await cdc_systems.publish(*(seed_run.pipe for seed_run in seed_runs))
    if kill:
        await _connected(cdc_systems, seed_runs)
    for phase, (share, truncates, loses_slot) in enumerate(PHASES, 1):
        if loses_slot:
            await asyncio.gather(*(lose_slot(cdc_systems, seed_run.connector) for seed_run in seed_runs))
        live_tasks = [
            asyncio.create_task(asyncio.to_thread(seed_run.change, share, phase, truncates))
            for seed_run in seed_runs
        ]
        if kill:
            snapshot = phase == 1 or PHASES[phase - 2][2]
            await _kill_each(cdc_systems, rng, report, _SNAPSHOT_BY if snapshot else ())
        for live_task in live_tasks:
            await live_task
        if loses_slot:
            for seed_run in seed_runs:
                await resume(seed_run.connector)
    if kill:
        await _kill_each(cdc_systems, rng, report)
    return await _compare(cdc_systems, seed_runs, report)


async def _connected(cdc_systems: MeshSystems, seed_runs: list["_Seed"]) -> None:
    """Return when each connector has begun: it has its slot."""
    slots = [seed_run.connector.config()["slot.name"] for seed_run in seed_runs]
    async with asyncio.timeout(_READY_S):
        while True:
            with psycopg.connect(cdc_systems.source.url) as connection:
                slot_rows = connection.execute("SELECT slot_name FROM pg_replication_slots").fetchall()
            if set(slots) <= {slot for (slot,) in slot_rows}:
                return
            await asyncio.sleep(0.2)


async def _kill_each(
    cdc_systems: MeshSystems,
    rng: random.Random,
    report: Callable[[str], None],
    first: Collection[str] = (),
) -> None:
    """Kill each process in a random order, those named first of all."""
    kill_names = sorted(cdc_systems.kills())
    rng.shuffle(kill_names)
    kill_names.sort(key=lambda name: name not in first)
    for name in kill_names:
        end = cdc_systems.kills().get(name)
        if end is None:
            continue  # it is being started
        report(f"   kill -9 {name}")
        await end()
        await asyncio.sleep(rng.uniform(*_BETWEEN_S))


async def _compare(
    cdc_systems: MeshSystems, seed_runs: list["_Seed"], report: Callable[[str], None]
) -> list[dict[str, int]]:
    """Wait until source and destination are equal, or do not come nearer while the mesh is ready."""
    counts_before, changed_s = [-1], time.monotonic()
    quiet_s = changed_s
    while True:
        counts = [await seed_run.differences(lambda _: None) for seed_run in seed_runs]
        now_s = time.monotonic()
        if counts != counts_before:
            report(f"   rows that differ: {counts}")
            counts_before, changed_s, quiet_s = counts, now_s, now_s
        if not cdc_systems.mesh.ready:
            quiet_s = now_s
        if not any(counts):
            break
        if now_s - quiet_s > _QUIET_S or now_s - changed_s > _STANDS_S:
            report(
                f"   nothing came for {now_s - changed_s:.0f} s: {cdc_systems.mesh.reasons() or 'all are ready'}"
            )
            break
        await asyncio.sleep(_LOOK_S)
    results = []
    for seed_run, count in zip(seed_runs, counts_before, strict=True):
        if count:
            await seed_run.differences(report)
        results.append({"seed": seed_run.seed, "changes": seed_run.done, "differences": count, "refused": 0})
        await publish(cdc_systems.bootstrap, cdc_systems.mesh.topics, [deletion_record(seed_run.pipe.pipe)])
        await delete_connector(cdc_systems, seed_run.connector)
    return results


class _Seed:
    """The tables of one seed."""

    def __init__(self, cdc_systems: MeshSystems, seed: int, changes: int, *, slow: bool) -> None:
        self._systems, self.seed, self._changes = cdc_systems, seed, changes
        self._rng = random.Random(seed)
        name = f"s{seed}"
        self.tables = make_tables(
            cdc_systems, name, self._rng, full=cdc_systems.destination_kind == "iceberg"
        )
        if cdc_systems.destination_kind == "iceberg":
            for table in self.tables:
                table.columns = [*map(_told_apart, table.columns)]
        self._to_postgres = cdc_systems.pipe(name, self.tables)
        self.pipe = cdc_systems.routed(self._to_postgres, self.tables, slow=slow)
        assert isinstance(self.pipe.source, DebeziumSource)
        self.connector = Connector("equivalence", name, self.pipe.source)
        self.done = 0

    def change(self, share: float, phase: int, truncates: int) -> None:
        """Change the tables."""
        count = int(self._changes * share)
        self.done += change_at_random(
            self._systems.source.url,
            self.tables,
            count,
            random.Random(self._rng.random()),
            first=phase * self._changes * 10,
            truncates=truncates,
            seconds=_CHANGES_S * share if phase else 0,
        )

    async def differences(self, report: Callable[[str], None]) -> int:
        """How many rows differ."""
        if self._systems.destination_kind == "iceberg":
            await self._copy_from_iceberg()
        return await asyncio.to_thread(differences, self._systems, self.tables, report)

    async def _copy_from_iceberg(self) -> None:
        """Write the rows of Iceberg to the tables in PostgreSQL, where values are compared as what they mean."""
        delivery = Delivery(self._to_postgres, self._rng)
        for table in self.tables:
            rows = await asyncio.to_thread(_iceberg_rows, self._systems.folder / "lake", table)
            with psycopg.connect(self._systems.target.url) as connection:
                connection.execute(f"TRUNCATE {table.name}, {table.name}_gone")
            events = [
                OutboundEvent(
                    orjson.dumps(_values(table, row)), "application/json", {}, b"", "0b" * 16, 0, number, 0
                )
                for number, row in enumerate(rows)
            ]
            for start in range(0, len(events), 200):
                await delivery.batch(f"public.{table.name}", events[start : start + 200])
        await delivery.finish()
        assert not delivery.refused, delivery.refused[:3]


def _told_apart(column: Column) -> Column:
    """A column whose JSON a string column of Iceberg keeps.

    That has the text of a string, which may read as another JSON value.
    """
    kind = column.kind
    if "json" not in kind.sql:
        return column
    ambiguous = ('"123"', '"null"')

    def value(rng: random.Random) -> str:
        text = kind.value(rng)
        return '"abc"' if text in ambiguous else text

    return Column(column.name, kind._replace(value=value))


def _iceberg_rows(warehouse: Path, table: Table) -> list[dict[str, Any]]:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import NoSuchTableError
    from sqlalchemy.exc import OperationalError

    if not (warehouse / "catalog.db").exists():
        return []
    catalog = SqlCatalog("hifi", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}")
    columns = tuple(column.name for column in (*table.key, *table.columns))
    try:
        rows = catalog.load_table(f"equivalence.{table.name}").scan(selected_fields=columns)
        written_rows: list[dict[str, Any]] = rows.to_arrow().to_pylist()
        return written_rows
    except (NoSuchTableError, OperationalError):  # lake creates the catalog, or holds its lock
        return []


def _values(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """A row of texts as the event that wrote it had it."""
    values = dict(row)
    for column in (*table.key, *table.columns):
        text = row[column.name]
        if text is not None and (column.kind.sql in _JSON or column.kind.sql.endswith("[]")):
            try:
                values[column.name] = orjson.Fragment(text)
                orjson.loads(text)
            except ValueError:
                values[column.name] = text
    return values
