"""The systems around the mesh of a run: sources, destinations, and what stands between them and the mesh."""

import asyncio
import contextlib
import os
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.chaos.connectors.http_destination import HttpDestination
from tests.chaos.connectors.s3_proxy import S3Proxy
from tests.chaos.connectors.standby import Standby
from tests.chaos.tcp_proxy import ForwardedPort
from tests.support.objects.s3_server import ACCESS_KEY, BUCKET, PROGRAM, SECRET_KEY
from tests.support.schema_registry import SchemaRegistryProcess

from hifi_infra.connect.worker import ConnectWorker
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.mesh.plan import CREDENTIALS
from hifi_infra.ports import free_port
from hifi_infra.postgres.server import PASSWORD, PostgresServer
from hifi_infra.process.process import Process

PARTITIONS: Final = 2
"""Of the topics at the beginning; a fault adds some."""
SCHEMA: Final = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "key", "type": "string"},
        {"name": "n", "type": "long"},
        {"name": "amount", "type": "string"},
        {"name": "text", "type": "string"},
    ],
}
_ROOT: Final = 0
_WITHIN_S: Final = 120.0


class Systems:
    """All of them, on free ports of this machine. `start` and `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kafka = KafkaCluster(folder / "outside-kafka", heap_mb=384)
        self.source = PostgresServer(
            "the source database", folder / "source.log", {"wal_level": "logical", "fsync": "off"}
        )
        self.target = PostgresServer("the destination database", folder / "target.log", {"fsync": "off"})
        """The server that writes now; clients reach it through `target_port`."""
        ports: list[int] = []
        for _ in range(5):
            ports.append(free_port(but=set(ports)))
        self.http = HttpDestination(ports[0])
        self.pool_port = ports[1]
        self.pool: Process | None = None
        self.s3_server = f"http://127.0.0.1:{ports[2]}"
        self.s3: Process | None = None
        self.s3_proxy = S3Proxy(ports[3], self.s3_server)
        self.connect = ConnectWorker(folder / "connect", "", 0)
        self._supervising: asyncio.Task[None] | None = None
        self.registry: SchemaRegistryProcess | None = None
        self.topics: list[str] = []
        self._s3_port = ports[2]
        self.target_port = ports[4]
        self._forward = ForwardedPort(self.target.port)
        self._forwarding: asyncio.Server | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Variables that the pipes refer to, and where collect finds the login of Kafka Connect."""
        return {
            "CHAOS_KEY": "chaos-key",
            "CHAOS_POOL": _with_port(self.target.url, self.pool_port),
            "CHAOS_TARGET": _with_port(self.target.url, self.target_port),
            "CHAOS_ACCESS": ACCESS_KEY,
            "CHAOS_SECRET": SECRET_KEY,
            "HIFI_CONNECT_CREDENTIALS_FILE": str(self.folder / "connect" / CREDENTIALS),
        }

    @property
    def password_file(self) -> Path:
        """File with the password of both databases."""
        return self.folder / "password"

    def bucket(self, prefix: str) -> dict[str, Any]:
        """The bucket as a pipe names it."""
        keys = {"access_key": {"env": "CHAOS_ACCESS"}, "secret_key": {"env": "CHAOS_SECRET"}}
        return {"bucket": BUCKET, "prefix": prefix, "endpoint": self.s3_proxy.url, **keys}

    async def start(self, *, avro: bool, connect: bool) -> None:
        """Start all of them.

        Args:
            avro: whether pipes need the schema registry.
            connect: whether pipes need Kafka Connect.
        """
        self.password_file.write_text(PASSWORD)
        await asyncio.gather(
            self.kafka.start(),
            self.source.start(),
            self.target.start(),
            self._start_s3(),
            self.http.start(),
            self.s3_proxy.start(),
        )
        self._forwarding = await asyncio.start_server(self._forward.connected, "127.0.0.1", self.target_port)
        await self._start_pool()
        if connect:
            self.connect = ConnectWorker(self.folder / "connect", self.kafka.bootstrap, free_port())
            await self.connect.start()
            self._supervising = asyncio.create_task(self.connect.supervise())
        if avro:
            self.registry = SchemaRegistryProcess(self.kafka.bootstrap, self.folder)
            await self.registry.prepare()
            await self.registry.start()

    async def stop(self) -> None:
        """End all of them."""
        if self.registry is not None:
            await self.registry.kill()
        if self._supervising is not None:
            self._supervising.cancel()
        await self.connect.stop()
        for process in (self.pool, self.s3):
            if process is not None and process.started:
                await process.kill()
        if self._forwarding is not None:
            self._forwarding.close()
        await asyncio.gather(self.http.stop(), self.s3_proxy.stop(), self.kafka.kill())
        for server in (self.source, self.target):
            await server.remove()

    async def fail_over(self) -> None:
        """Kill the server of the destination database once a synchronous standby has all of it, which takes over."""
        old_server, standby = self.target, Standby(self.target, self.folder / "target.log", {"fsync": "off"})
        assert old_server.process is not None
        await standby.start()
        await self.execute(
            old_server.url, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"
        )
        await until(partial(_has_standby, old_server.url), _WITHIN_S, "the standby is synchronous")
        await old_server.process.kill()
        await self.execute(standby.url, "SELECT pg_promote()")
        self.target, self._forward.target = standby, standby.port
        await old_server.remove()

    async def create_topics(self, *names: str) -> None:
        """Create topics for events on the Kafka of sources and destinations."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.kafka.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names])
        finally:
            await admin.close()
        self.topics += names

    async def execute(self, url: str, *statements: str) -> None:
        """Run statements on one of the databases."""
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            for statement in statements:
                await connection.execute(statement.encode())

    async def _start_s3(self) -> None:
        root = self.folder / "s3"
        (root / BUCKET).mkdir(parents=True)
        command = [str(PROGRAM), "--quiet", "--port", f"127.0.0.1:{self._s3_port}", "posix", str(root)]
        env = {**os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        self.s3 = Process("S3 server", command, env=env, log=self.folder / "s3.log")
        await self.start_process(self.s3, self._s3_port)

    async def _start_pool(self) -> None:
        program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
        assert program, "PgBouncer is not installed: apt-get install pgbouncer"
        folder = self.folder / "pgbouncer"
        folder.mkdir()
        users, settings = folder / "users", folder / "pgbouncer.ini"
        users.write_text(f'"postgres" "{PASSWORD}"\n')
        settings.write_text(
            f"[databases]\npostgres = host=127.0.0.1 port={self.target_port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.pool_port}\nunix_socket_dir =\nauth_type = plain\n"
            f"auth_file = {users}\npool_mode = transaction\ndefault_pool_size = 4\n"
        )
        command = [program, str(settings)]
        if os.getuid() == _ROOT:
            for path in (folder, users, settings):
                shutil.chown(path, "postgres")
            for parent in (self.folder, self.folder.parent):
                parent.chmod(0o755)
            command = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", *command]
        self.pool = Process("PgBouncer", command, log=self.folder / "pgbouncer.log")
        await self.start_process(self.pool, self.pool_port)

    async def start_process(self, process: Process, port: int) -> None:
        """Start a process, and return when it listens."""
        await process.start()
        await until(lambda: _listens(port), _WITHIN_S, f"{process.log} listens")


async def _has_standby(url: str) -> bool:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        rows = await connection.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
        return bool(await rows.fetchall())


def _with_port(url: str, port: int) -> str:
    return f"{url.rpartition(':')[0]}:{port}/postgres"


async def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


async def until(condition: Callable[[], Awaitable[bool]], within_s: float, description: str) -> None:
    """Poll until something holds.

    Raises:
        TimeoutError: it does not hold within the bound.
    """
    try:
        async with asyncio.timeout(within_s):
            while not await condition():
                await asyncio.sleep(0.5)
    except TimeoutError:
        raise TimeoutError(f"{description}: not within {within_s:.0f} s") from None


@contextlib.asynccontextmanager
async def systems(folder: Path, *, avro: bool, connect: bool) -> AsyncIterator[Systems]:
    """The systems while the block runs."""
    running_systems = Systems(folder)
    try:
        await running_systems.start(avro=avro, connect=connect)
        yield running_systems
    finally:
        await running_systems.stop()
