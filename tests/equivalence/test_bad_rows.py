"""Rows of every type through a mesh into one table: a row that cannot be stored does not delay its neighbours."""

import asyncio
import os
import random
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from tests.equivalence.columns import KINDS, TYPES
from tests.support.stream_process import PARTITIONS, read_all

from hifi.pipe.model import Pipe
from hifi.record.fields import fields
from hifi.record.headers import DETAIL, REASON
from hifi_infra.connect.worker import ConnectWorker
from hifi_infra.kafka.stream_setup import put_in_force
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port
from hifi_infra.postgres.server import PASSWORD, PostgresServer

URL = "BAD_ROWS_URL"
START_S = 400
NARROW = {"integer": "smallint", "varchar(40)": "varchar(1)", "numeric": "numeric(3, 1)", "text": "integer"}
"""Type of a column at the source to that at the destination, which refuses the values below."""
TOO_WIDE = {"integer": "70000", "varchar(40)": "long", "numeric": "12345678", "text": "no number"}
UNREADABLE = {"timetz": "12:00:00+02", "bit varying(5)": "101"}
"""Types that a change is refused for."""


class Column:
    """A column of one type; rows have a value in one column only."""

    def __init__(self, number: int, sql: str) -> None:
        self.name, self.sql = f"c{number}", sql


def columns() -> list[Column]:
    kinds = [kind for kind in KINDS if not kind.ambiguous]
    return [Column(number, sql) for number, sql in enumerate([*(kind.sql for kind in kinds), *UNREADABLE])]


def rows(table_columns: list[Column], rng: random.Random) -> list[tuple[int, str, str, bool]]:
    """Id, column, value, and whether it can be stored; two rows of each type, in random order."""
    values = {kind.sql: kind.value for kind in KINDS}
    pairs: list[tuple[str, str, bool]] = []
    for column in table_columns:
        bad_value = {**TOO_WIDE, **UNREADABLE}.get(column.sql)
        pairs += [(column.name, bad_value or values[column.sql](rng), bad_value is None) for _ in range(2)]
    rng.shuffle(pairs)
    return [(number, *pair) for number, pair in enumerate(pairs)]


def pipe(worker: ConnectWorker, mesh: Mesh, database: PostgresServer, password: Path) -> Pipe:
    database_settings = {"host": "127.0.0.1", "port": database.port, "name": "postgres", "user": "postgres"}
    source = {
        "kind": "debezium",
        "connect": worker.url,
        "bootstrap": mesh.bootstrap,
        "topic": "changes",
        "database": database_settings | {"password_file": str(password)},
        "tables": ["public.source"],
    }
    column_names = ["id", *(column.name for column in columns() if column.sql not in UNREADABLE)]
    settings = {
        "url": {"env": URL},
        "table": "target",
        "columns": {name: name for name in column_names},
        "key": ["id"],
    }
    destination = {"name": "target", "kind": "postgres", "settings": settings}
    return Pipe.model_validate({"pipe": "rows", "source": source, "destinations": [destination]})


@pytest.mark.more
@pytest.mark.timeout(1200)
async def test_a_row_that_cannot_be_stored_names_its_column_and_its_neighbours_wait_for_no_retry(
    tmp_path: Path,
) -> None:
    table_columns = columns()
    source_rows = rows(table_columns, random.Random(7))
    database = await PostgresServer("PostgreSQL", tmp_path / "postgres.log", {"wal_level": "logical"}).start()
    plan = Plan(
        tmp_path / "data",
        port=free_port(),
        partitions=PARTITIONS,
        scale={"collect": 1},
        env={URL: database.url},
    )
    mesh = Mesh(plan)
    mesh.prepare()
    worker: ConnectWorker | None = None
    try:
        async with await psycopg.AsyncConnection.connect(database.url, autocommit=True) as connection:
            await connection.execute(TYPES)
            await connection.execute(_table("source", table_columns, {}).encode())
            await connection.execute(
                _table(
                    "target", [column for column in table_columns if column.sql not in UNREADABLE], NARROW
                ).encode()
            )
            await mesh.start()
            worker = ConnectWorker(plan.data / "connect", mesh.bootstrap, free_port())
            await worker.start()
            (password := tmp_path / "password").write_text(PASSWORD)
            variables = {**os.environ, **plan.env}
            declared_pipe = pipe(worker, mesh, database, password)
            await put_in_force(mesh.bootstrap, mesh.topics, [declared_pipe], variables=variables)
            await mesh.wait_ready(START_S)
            async with asyncio.timeout(START_S):
                while not await _rows(connection, "SELECT 1 FROM pg_replication_slots WHERE active"):
                    await asyncio.sleep(0.5)
            async with connection.transaction():
                for number, name, value, _ in source_rows:
                    statement = f"INSERT INTO source (id, {name}) VALUES (%s, %s)".encode()
                    await connection.execute(statement, [number, value])
            storable_numbers = {number for number, _, _, storable in source_rows if storable}
            stored_ids: set[int] = set()
            async with asyncio.timeout(START_S):
                while not storable_numbers <= stored_ids:
                    await asyncio.sleep(0.5)
                    stored_ids = {row["id"] for row in await _rows(connection, "SELECT id FROM target")}
            assert stored_ids == storable_numbers
            compared = [
                f"{column.name}::text"
                for column in table_columns
                if column.sql not in {*UNREADABLE, *NARROW, "json"}  # the text of json may have other spaces
            ]
            names = ", ".join(compared)
            different = await _rows(
                connection,
                f"(SELECT id, {names} FROM target) EXCEPT (SELECT id, {names} FROM source)",
            )
            assert different == []
            reasons_by_id: dict[str, tuple[str, str]] = {}
            async with asyncio.timeout(START_S):
                while len(reasons_by_id) < len(source_rows) - len(storable_numbers):
                    for record in await read_all(mesh.bootstrap, mesh.topics.dead_letter):
                        headers = fields(record.headers)
                        reasons_by_id[headers["ce_id"].decode()] = (
                            headers[REASON].decode(),
                            headers[DETAIL].decode(),
                        )
                    await asyncio.sleep(0.5)
            assert len(reasons_by_id) == len(source_rows) - len(storable_numbers)
            for number, name, _, storable in source_rows:
                if not storable:
                    assert any(re.search(rf"\b{name}\b", detail) for _, detail in reasons_by_id.values()), (
                        number,
                        name,
                        reasons_by_id,
                    )
            waited = [
                record
                for tier in mesh.topics.tiers
                for record in await read_all(mesh.bootstrap, mesh.topics.retry_in(tier))
            ]
            assert {fields(record.headers)["ce_id"].decode() for record in waited} <= reasons_by_id.keys()
    finally:
        await mesh.kill()
        if worker is not None:
            await worker.stop()
        await database.remove()


def _table(name: str, table_columns: list[Column], narrow: dict[str, str]) -> str:
    definitions = [f"{column.name} {narrow.get(column.sql, column.sql)}" for column in table_columns]
    if name == "target":
        definitions += ["hifi_log uuid", "hifi_partition integer", "hifi_offset bigint"]
        definitions += ["hifi_accepted timestamptz", "hifi_unchanged jsonb"]
    return f"CREATE TABLE {name} (id integer PRIMARY KEY, {', '.join(definitions)})"


async def _rows(connection: psycopg.AsyncConnection[Any], query: str) -> list[dict[str, Any]]:
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(query.encode())
        return await cursor.fetchall()
