"""One run of `hifi demo --cdc`: a database with a writer, Kafka Connect, a mesh, and what arrived where."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import psycopg

from hifi.runtime.errors import Retryable
from hifi_cli.demo.cdc import arrivals, database, every_type
from hifi_cli.demo.cdc.arrivals import Arrivals
from hifi_cli.demo.cdc.pipe import (
    EVERY_TYPE,
    LAKE,
    MASK,
    TABLE,
    TARGET_TABLES,
    TARGET_URL,
    WEBHOOK,
    change_pipe,
)
from hifi_cli.demo.cdc.report import lag_summary
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.patience import Patience
from hifi_cli.demo.verify import RequestLogReader
from hifi_cli.demo.workspace import Workspace
from hifi_infra.connect.worker import ConnectWorker
from hifi_infra.kafka.stream_setup import put_in_force
from hifi_infra.mesh.mesh import Mesh, processes
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port
from hifi_infra.postgres.server import PASSWORD, PostgresServer

ROWS: Final = 2_000
CHANGES: Final = 1_200
CHANGES_S: Final = 60.0
_READY_S: Final = 600.0
_POLL_S: Final = 1.0
_BETWEEN_KILLS_S: Final = 4.0
_LAKE_INTERVAL_S: Final = 2


def _with_changes(plan: Plan, target: PostgresServer, mask_key: str) -> Plan:
    """The plan of a mesh for this demo."""
    env = {
        "HIFI_LAKE_INTERVAL_S": str(_LAKE_INTERVAL_S),
        "HIFI_LAKE_MASTER": "local[1]",
        MASK: mask_key,
        TARGET_URL: target.url,
    }
    return replace(
        plan,
        console_port=free_port(but={plan.port}),
        scale={"observe": 1, "collect": 1, "lake": 1},
        env={**plan.env, **env},
    )


@dataclass(slots=True)
class ChangeDemo:
    """One run. `kill` always ends all of its processes.

    Attributes:
        load_test: with the mesh.
        source: database whose changes are read.
        target: database with the copy of the table.
        tell: prints a line about the progress.
        kills: whether each process is killed once in the middle.
        killed_ns: when a process was killed, nanoseconds since 1970 UTC.
    """

    load_test: LoadTest
    source: PostgresServer
    target: PostgresServer
    tell: Callable[[str], None]
    kills: bool
    killed_ns: list[int] = field(default_factory=list)
    worker: ConnectWorker | None = None
    supervising: asyncio.Task[None] | None = None
    writer: database.Writer | None = None

    @classmethod
    def planned(
        cls, workspace: Workspace, plan: Plan, tell: Callable[[str], None], *, kills: bool
    ) -> "ChangeDemo":
        """A run that is not started, with the mesh of a plan."""
        logs = workspace.data / "logs"
        source = PostgresServer("the source database", logs / "source.log", {"wal_level": "logical"})
        target = PostgresServer("the target database", logs / "target.log")
        mesh = Mesh(_with_changes(plan, target, workspace.mask_key))
        return cls(LoadTest(workspace, mesh), source, target, tell, kills)

    async def run(self) -> dict[str, Any]:
        """Run the demo and return its report.

        Raises:
            HifiError: PostgreSQL, Kafka Connect or the mesh did not start, or a process of the demo failed.
        """
        workspace, source, target = self.load_test.workspace, self.source, self.target
        self.tell("starting two PostgreSQL servers, and filling the table of the first")
        await asyncio.gather(source.start(), target.start(), self.load_test.start_destination())
        type_rows = every_type.TypeRows()
        await asyncio.to_thread(database.prepare, source.url, ROWS, type_rows)
        await asyncio.to_thread(_create_tables, target.url)
        await self._start_mesh()
        webhook_arrivals = Arrivals(RequestLogReader(workspace.request_log))
        self.tell(f"waiting until the snapshot of {ROWS:,} rows has arrived")
        began_s = time.monotonic()
        await self._wait_for_count(
            webhook_arrivals, lambda: len(webhook_arrivals.snapshot), ROWS, "rows of the snapshot"
        )
        self.tell(f"making {CHANGES:,} changes in {CHANGES_S:.0f} s")
        writer = self.writer = database.Writer(source.url, ROWS, CHANGES, CHANGES_S, type_rows)
        writer.start()
        if self.kills:
            await self._kill_each()
        while writer.is_alive():
            await asyncio.sleep(_POLL_S)
        if writer.error is not None:
            raise Retryable(f"the writer failed: {writer.error}")
        logged_changes = await asyncio.to_thread(database.logged_changes, source.url)
        self.tell(f"waiting until {logged_changes.total():,} changes of rows have arrived everywhere")
        expected = arrivals.masked(await asyncio.to_thread(database.rows_of, source.url), workspace.mask_key)
        await self._wait_for_count(
            webhook_arrivals, webhook_arrivals.changes.total, logged_changes.total(), "changes at the webhook"
        )
        tables = await self._compare_tables(expected)
        return await self._report(webhook_arrivals, logged_changes, tables, time.monotonic() - began_s)

    async def kill(self) -> None:
        """End all processes immediately."""
        if self.writer is not None:
            self.writer.stop()
        await self.load_test.kill()
        if self.supervising is not None:
            self.supervising.cancel()
        if self.worker is not None:
            await self.worker.stop()
        for server in (self.source, self.target):
            await server.remove()

    async def stop(self) -> None:
        """End all processes."""
        await self.kill()

    async def _start_mesh(self) -> None:
        workspace, mesh = self.load_test.workspace, self.load_test.mesh
        self.tell("starting the mesh and Kafka Connect")
        password_file = workspace.data / "source-password"
        password_file.write_text(PASSWORD)
        password_file.chmod(0o600)
        await mesh.start()
        port = free_port()
        worker = self.worker = ConnectWorker(workspace.data / "connect", mesh.bootstrap, port)
        await worker.start()
        self.supervising = asyncio.create_task(worker.supervise())
        pipe = change_pipe(
            worker.url,
            mesh.bootstrap,
            (self.source.port, password_file),
            workspace.destination_port,
            workspace.data / "lake",
        )
        await put_in_force(mesh.bootstrap, mesh.topics, [pipe], variables={**os.environ, **mesh.plan.env})
        await mesh.wait_ready(_READY_S)

    async def _kill_each(self) -> None:
        """Kill each process once, one after the other; what does not come back by itself is started again."""
        worker, mesh = self.worker, self.load_test.mesh
        assert worker is not None
        assert worker.process is not None
        for name, process in processes(mesh).items():
            self.tell(f"   kill -9 {name}")
            self.killed_ns.append(time.time_ns())
            await process.kill()
            await asyncio.sleep(_BETWEEN_KILLS_S)
        self.tell("   kill -9 Kafka Connect")
        restarts_before = worker.restarts
        await worker.process.kill()
        async with asyncio.timeout(_READY_S):
            while worker.restarts == restarts_before:
                await asyncio.sleep(_POLL_S)
        for server in (self.source, self.target):
            assert server.process is not None
            self.tell(f"   kill -9 {server.process.name}")
            self.killed_ns.append(time.time_ns())
            await server.process.kill()
            await server.restart()

    async def _wait_for_count(
        self, webhook_arrivals: Arrivals, count: Callable[[], int], goal: int, subject: str
    ) -> None:
        """Wait until a count has reached its goal, or has not grown for a long time."""
        patience = Patience(self.tell, subject)
        while (arrived_count := count()) < goal:
            if not await patience.wait(f"{arrived_count:,} of {goal:,}"):
                return
            await self.load_test.count()
            await asyncio.to_thread(webhook_arrivals.read)

    async def _compare_tables(self, expected: dict[str, dict[str, Any]]) -> dict[str, dict[str, int]]:
        """Compare the rows of both tables with the source until they are equal, or none has for a long time."""
        warehouse = self.load_test.workspace.data / "lake"
        patience = Patience(self.tell, "rows that differ")
        while True:
            row_sets = await asyncio.gather(
                asyncio.to_thread(database.rows_of, self.target.url),
                asyncio.to_thread(arrivals.lake_rows, warehouse),
                asyncio.to_thread(every_type.rows_of, self.source.url),
                asyncio.to_thread(every_type.rows_of, self.target.url),
            )
            rows_of = dict(zip((TABLE, LAKE), row_sets[:2], strict=True))
            different_counts = {name: arrivals.different(expected, rows) for name, rows in rows_of.items()}
            source_rows, target_rows = row_sets[2:]
            different_counts[EVERY_TYPE] = arrivals.different(source_rows, target_rows)
            differences = ", ".join(f"{name} {count:,}" for name, count in different_counts.items())
            if not any(different_counts.values()) or not await patience.wait(differences):
                compared_rows: dict[str, tuple[Mapping[Any, Any], Mapping[Any, Any]]] = {
                    **{name: (expected, rows) for name, rows in rows_of.items()},
                    EVERY_TYPE: (source_rows, target_rows),
                }
                return {
                    name: {
                        "equal": len(source.keys() & target.keys()) - _unequal(source, target),
                        "different": different_counts[name],
                    }
                    for name, (source, target) in compared_rows.items()
                }

    async def _report(
        self,
        webhook_arrivals: Arrivals,
        logged_changes: Any,
        tables: dict[str, dict[str, int]],
        seconds: float,
    ) -> dict[str, Any]:
        mesh = self.load_test.mesh
        await asyncio.sleep(_POLL_S)  # for copies that come late
        await self.load_test.count()
        await asyncio.to_thread(webhook_arrivals.read)
        answered_ms, unanswered_ids = await arrivals.read_receipts(mesh.bootstrap, mesh.topics)
        answered_ms[WEBHOOK] = {name: at_ns / 1e6 for name, at_ns in webhook_arrivals.first_ns.items()}
        ambiguous_count = webhook_arrivals.ambiguous(self.killed_ns, unanswered_ids.get(WEBHOOK, ()))
        return {
            "rows": ROWS,
            "changes": logged_changes.total(),
            "different": sum(table["different"] for table in tables.values()),
            "lost": (logged_changes - webhook_arrivals.changes).total()
            + max(0, ROWS - len(webhook_arrivals.snapshot)),
            "duplicates": len(webhook_arrivals.repeated) - ambiguous_count,
            "ambiguous": ambiguous_count,
            "unexpected": (webhook_arrivals.changes - logged_changes).total()
            + max(0, len(webhook_arrivals.snapshot) - ROWS),
            "seconds": round(seconds, 1),
            "tables": tables,
            "lag_ms": {
                name: lag_summary(webhook_arrivals.lags_ms(answered_ms.get(name, {})))
                for name in (WEBHOOK, TABLE, LAKE)
            },
        }


def _create_tables(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(TARGET_TABLES)
        connection.execute(every_type.TARGET_TABLE)


def _unequal(expected: Mapping[Any, Any], actual: Mapping[Any, Any]) -> int:
    return sum(expected[name] != actual[name] for name in expected.keys() & actual.keys())
