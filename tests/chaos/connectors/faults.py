"""The faults of systems around the mesh, and those of the mesh itself. Each ends by itself and returns what it did."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import psycopg
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from tests.chaos import faults as of_mesh
from tests.chaos.connectors import http_destination, s3_proxy
from tests.chaos.connectors.systems import PARTITIONS, Systems, until
from tests.chaos.faults import FaultContext
from tests.chaos.verification import FaultWindow

from hifi_infra.postgres.server import PostgresServer

_CONNECT_S: Final = 300.0
TABLE_LOCKED_S: Final = 60.0
MOST_PARTITIONS: Final = 6


@dataclass(frozen=True, slots=True)
class ConnectorContext:
    """The mesh and the systems that a fault uses.

    Attributes:
        mesh: what faults of the mesh use.
        systems: around the mesh.
        longest_s: of an outage, seconds.
        tables: tables of destinations.
    """

    mesh: FaultContext
    systems: Systems
    longest_s: float
    tables: list[str]

    @property
    def random_source(self) -> random.Random:
        """Of the run."""
        return self.mesh.random_source

    async def wait(self) -> None:
        """Wait for as long as an outage lasts."""
        await asyncio.sleep(self.random_source.uniform(2, self.longest_s))


Fault: TypeAlias = Callable[[ConnectorContext], Awaitable[str]]
"""Returns its target."""


async def kill_source_database(context: ConnectorContext) -> str:
    """SIGKILL of the source database, which recovers after a while."""
    return await _kill_database(context, context.systems.source)


async def kill_target_database(context: ConnectorContext) -> str:
    """SIGKILL of the destination database, which recovers after a while."""
    return await _kill_database(context, context.systems.target)


async def fail_over_target_database(context: ConnectorContext) -> str:
    """SIGKILL of the destination database, whose synchronous standby takes over."""
    await context.systems.fail_over()
    return "target database"


async def freeze_target_database(context: ConnectorContext) -> str:
    """SIGSTOP of the destination database for a while."""
    process = context.systems.target.process
    assert process is not None
    process.pause()
    try:
        await context.wait()
    finally:
        process.resume()
    return "target database"


async def lock_tables(context: ConnectorContext) -> str:
    """An exclusive lock of a table of each destination in the database."""
    async with await psycopg.AsyncConnection.connect(context.systems.target.url) as connection:
        for table in context.tables:
            await connection.execute(f'LOCK TABLE "{table}" IN ACCESS EXCLUSIVE MODE'.encode())
        await asyncio.sleep(TABLE_LOCKED_S)
    return "tables"


async def end_sessions(context: ConnectorContext) -> str:
    """The destination database ends every connection, also within transactions."""
    await context.systems.execute(
        context.systems.target.url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'",
    )
    return "target database"


async def restart_pgbouncer(context: ConnectorContext) -> str:
    """SIGKILL of PgBouncer, which starts again after a while."""
    systems = context.systems
    assert systems.pool is not None
    await systems.pool.kill()
    await context.wait()
    await systems.start_process(systems.pool, systems.pool_port)
    return "PgBouncer"


async def fail_s3(context: ConnectorContext) -> str:
    """The S3 server fails or answers slowly in one way for a while."""
    proxy = context.systems.s3_proxy
    proxy.mode = context.random_source.choice(s3_proxy.MODES)
    mode = proxy.mode
    await context.wait()
    proxy.mode = "ok"
    return mode


async def kill_s3(context: ConnectorContext) -> str:
    """SIGKILL of the S3 server, which starts again after a while."""
    systems = context.systems
    assert systems.s3 is not None
    await systems.s3.kill()
    await context.wait()
    await systems.start_process(systems.s3, int(systems.s3_server.rpartition(":")[2]))
    return "S3 server"


async def fail_http(context: ConnectorContext) -> str:
    """The HTTP destination fails or answers slowly in one way for a while."""
    http = context.systems.http
    http.mode = mode = context.random_source.choice(http_destination.MODES)
    await context.wait()
    http.mode = "ok"
    return mode


async def kill_connect(context: ConnectorContext) -> str:
    """SIGKILL of the worker of Kafka Connect, which is started again."""
    worker = context.systems.connect
    restarts = worker.restarts
    await worker.stop()

    async def is_restarted() -> bool:
        return worker.restarts > restarts

    await until(is_restarted, _CONNECT_S, "Kafka Connect takes requests again")
    return "Connect worker"


async def registry_away(context: ConnectorContext) -> str:
    """SIGKILL of the schema registry, which starts again after a while."""
    registry = context.systems.registry
    assert registry is not None
    await registry.kill()
    await context.wait()
    await registry.start()
    return "schema registry"


async def kill_outside_kafka(context: ConnectorContext) -> str:
    """SIGKILL of the Kafka of sources and destinations, which starts again after a while."""
    kafka = context.systems.kafka
    await kafka.kill_broker(1)
    await context.wait()
    await kafka.start_broker(1, 120)
    return "outside Kafka"


async def freeze_outside_kafka(context: ConnectorContext) -> str:
    """SIGSTOP of the Kafka of sources and destinations for a while."""
    kafka = context.systems.kafka
    kafka.pause_broker(1)
    try:
        await context.wait()
    finally:
        kafka.resume_broker(1)
    return "outside Kafka"


async def grow_topics(context: ConnectorContext) -> str:
    """Topics of sources and destinations get more partitions; at most `MOST_PARTITIONS`."""
    admin = AIOKafkaAdminClient(bootstrap_servers=context.systems.kafka.bootstrap)
    await admin.start()
    try:
        descriptions = await admin.describe_topics(context.systems.topics)
        counts = {topic["topic"]: len(topic["partitions"]) for topic in descriptions}
        new_partitions = {
            name: NewPartitions(count + PARTITIONS)
            for name, count in counts.items()
            if count < MOST_PARTITIONS
        }
        if new_partitions:
            await admin.create_partitions(new_partitions)
    finally:
        await admin.close()
    return f"{len(new_partitions)} topics"


async def _kill_database(context: ConnectorContext, server: PostgresServer) -> str:
    assert server.process is not None
    await server.process.kill()
    await context.wait()
    await server.restart()
    return "source database" if server is context.systems.source else "target database"


_OF_SYSTEMS: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        kill_source_database,
        kill_target_database,
        fail_over_target_database,
        freeze_target_database,
        lock_tables,
        end_sessions,
        restart_pgbouncer,
        fail_s3,
        kill_s3,
        fail_http,
        kill_connect,
        registry_away,
        kill_outside_kafka,
        freeze_outside_kafka,
        grow_topics,
    )
}
_OF_MESH: Final = (
    "kill",
    "terminate",
    "freeze",
    "kill_driver",
    "freeze_broker",
    "kill_all_brokers",
    "scale",
    "cut",
    "step_clock",
)
_OF_SERVICE: Final = {f"kill_{name}": name for name in ("collect", "normalize", "enrich", "egest", "lake")}
FAULTS: Final = (*_OF_MESH, *_OF_SERVICE, *_OF_SYSTEMS)
LEFT_OUT: Final = ("kill_broker", "misbehave", "fill_disk", "rotate_password", "replace_certificate")
"""Faults of `make chaos` that are not here; bench/notes/chaos.md says why."""
DOUBLED: Final = ("collect", "normalize", "egest")
"""Services with two instances, to scale and to cut from Kafka."""
CLOCKED: Final = ("normalize", "egest")
"""Services whose clocks are stepped. Not collect, whose clock says in which minute observe counts an event."""
NEEDS: Final = {
    "kill_source_database": {"from debezium", "from sql"},
    "kill_target_database": {"to append", "to upsert"},
    "fail_over_target_database": {"to append", "to upsert"},
    "freeze_target_database": {"to append", "to upsert"},
    "lock_tables": {"to append", "to upsert"},
    "end_sessions": {"to append", "to upsert"},
    "restart_pgbouncer": {"to append"},
    "fail_s3": {"from objects", "to objects"},
    "kill_s3": {"from objects", "to objects"},
    "fail_http": {"to http"},
    "kill_connect": {"from debezium"},
    "registry_away": {"from kafka", "to kafka"},
    "kill_outside_kafka": {"from kafka", "from debezium", "to kafka"},
    "freeze_outside_kafka": {"from kafka", "from debezium", "to kafka"},
    "grow_topics": {"from kafka", "to kafka"},
    "kill_collect": {"from kafka", "from debezium", "from sql", "from objects"},
    "kill_lake": {"to lake", "to lake-upsert"},
}
"""Fault to the kinds that it meets; others meet every kind."""


async def inject(name: str, context: ConnectorContext) -> FaultWindow:
    """Inject a fault, and return when it is over."""
    start_s = time.time()
    if name in _OF_SYSTEMS:
        return FaultWindow(name, await _OF_SYSTEMS[name](context), start_s, time.time())
    if name in _OF_SERVICE:
        target = await of_mesh.kill_instance(context.mesh, _OF_SERVICE[name])
        return FaultWindow("kill", target, start_s, time.time())
    return await of_mesh.FAULTS[name](context.mesh)
