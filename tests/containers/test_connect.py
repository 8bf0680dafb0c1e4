"""Kafka Connect beside a mesh in containers: the changes of a PostgreSQL database arrive once."""

import asyncio
import ipaddress
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.support.containers.stack import ROOT, ComposeMesh, inspect, until

from hifi_infra.postgres.server import PASSWORD, USER, PostgresServer

pytestmark = pytest.mark.more  # without containers: tests/services/observe/test_connectors_with_faults.py
ROWS = 40
PIPE = """
pipe: customers
source:
  kind: debezium
  connect: http://connect:8083
  bootstrap: kafka:9092
  topic: hifi-connect.customers
  security:
    {{protocol: SASL_SSL, ca_file: /run/kafka/ca.pem, user: hifi.changes, password_file: /run/secrets/changes_password}}
  database:
    {{host: "{host}", port: {port}, name: postgres, user: {user}, password_file: /run/secrets/database/customers/shop}}
  tables: [public.customers]
destinations:
  - {{name: search, url: "http://destination:9100/customers"}}
"""


@pytest.fixture
def readable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that other users may read."""
    folder = tmp_path_factory.mktemp("readable")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def database(mesh: ComposeMesh, readable: Path) -> AsyncIterator[PostgresServer]:
    """A database of this machine that the containers of the mesh reach at the gateway of their network."""
    mesh.compose("create", "kafka")
    template = "{{(index .IPAM.Config 0).Gateway}} {{(index .IPAM.Config 0).Subnet}}"
    gateway, subnet = inspect(f"{mesh.project}_connect", template).split()
    access = readable / "pg_hba.conf"
    networks = ("127.0.0.1/32", str(ipaddress.ip_network(subnet)))
    access.write_text("".join(f"host all,replication all {network} scram-sha-256\n" for network in networks))
    access.chmod(0o644)
    options = {
        "listen_addresses": f"127.0.0.1,{gateway}",
        "hba_file": str(access),
        "wal_level": "logical",
        "unix_socket_directories": "",
    }
    allowed_addresses = "http=destination:9100,connect=connect:8083,kafka=kafka:9092"
    mesh.env["HIFI_EGRESS_ALLOW"] = f"{allowed_addresses},database={gateway}"
    server = await PostgresServer("the database", readable / "postgres.log", options).start()
    pipe = PIPE.format(host=gateway, port=server.port, user=USER)
    Path(mesh.env["HIFI_PIPES"], "customers.yaml").write_text(pipe)
    yield server
    await server.remove()


@pytest.fixture
def mesh(make_mesh: Callable[..., ComposeMesh], readable: Path, secrets: Path) -> ComposeMesh:
    pipes = readable / "pipes"
    shutil.copytree(ROOT / "examples/compose/pipes", pipes)
    pipes.chmod(0o755)
    password = secrets / "database" / "customers" / "shop"
    password.parent.mkdir(mode=0o755, exist_ok=True)
    password.write_text(PASSWORD)
    password.chmod(0o444)
    example = ("write_key", "mask_key", "signing_key")
    grants = [f"orders=/run/secrets/{name}" for name in example] + ["customers=/run/secrets/changes_password"]
    return make_mesh(
        "connect", HIFI_CONNECT="1", HIFI_PIPES=str(pipes), HIFI_PIPES_SECRET_GRANTS=",".join(grants)
    )


async def test_changes_of_a_database_arrive_once_though_the_worker_dies(
    mesh: ComposeMesh, database: PostgresServer
) -> None:
    async with await psycopg.AsyncConnection.connect(database.url, autocommit=True) as shop:
        await shop.execute("CREATE TABLE customers (id int PRIMARY KEY, name text)")
        await shop.execute("INSERT INTO customers SELECT n, 'before' FROM generate_series(1, %s) n", [ROWS])
        await asyncio.to_thread(mesh.up)
        until(lambda: len(mesh.arrivals("/customers")) == ROWS, "the snapshot is delivered")
        await shop.execute("UPDATE customers SET name = 'while it runs'")
        until(lambda: len(mesh.arrivals("/customers")) == 2 * ROWS, "the changes are delivered")
        await asyncio.to_thread(mesh.crash, "connect")
        await shop.execute("DELETE FROM customers WHERE id <= 10")
        until(
            lambda: len(mesh.arrivals("/customers")) == 2 * ROWS + 10, "what changed meanwhile is delivered"
        )
        assert set(mesh.arrivals("/customers").values()) == {1}
