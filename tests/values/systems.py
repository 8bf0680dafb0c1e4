"""A real PostgreSQL as source and destination, and a real Iceberg table that Spark writes."""

import asyncio
import contextlib
import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession
from tests.support.postgres.postgres_server import PASSWORD, USER, PostgresServer
from tests.values.destinations import Rows, outbound
from tests.values.tables import Table, of_json

from hifi.delivery.installed_kinds import read_settings
from hifi.delivery.kind import WriterContext
from hifi.pipe.model import ConnectorDestination, SqlType
from hifi.runtime import exact_json
from hifi.spark.spark_session import stop_spark
from hifi_iceberg.declaration import IcebergSettings, LakeTable
from hifi_iceberg.destination.catalog import open_table
from hifi_iceberg.destination.commits import TableCommits
from hifi_iceberg.destination.file_store import FileStore
from hifi_iceberg.destination.progress import PartitionProgress, TableOwner, TableProgress
from hifi_lake.batch.stored_files import StoredFiles
from hifi_lake.batch.table_rows import ROW, with_rows
from hifi_lake.query.session import start_session
from hifi_lake.settings import LakeSettings
from hifi_postgres.declaration import SqlSource
from hifi_postgres.source.rows import postgres_rows

LOG = "0a" * 16
URL = "TEST_POSTGRES_URL"
COLUMNS = {
    "long": "bigint", "double": "float8", "decimal": "numeric", "boolean": "boolean", "text": "text", "bytes": "bytea",
    "timestamp": "timestamptz", "date": "date", "time": "time", "list": "bigint[]",
}  # fmt: skip
LAKE = dict.fromkeys(COLUMNS, SqlType.STRING) | {
    "long": SqlType.BIGINT, "double": SqlType.DOUBLE, "boolean": SqlType.BOOLEAN, "timestamp": SqlType.TIMESTAMP,
    "date": SqlType.DATE,
}  # fmt: skip


class Postgres:
    """Tables of a server of its own."""

    def __init__(self, server: PostgresServer, folder: Path, runner: asyncio.Runner) -> None:
        self._server = server
        self._runner = runner
        self._password = folder / "password"
        self._password.write_text(PASSWORD)
        os.environ[URL] = server.url
        self._connection = psycopg.connect(server.url, autocommit=True)
        self._connection.execute("SET TimeZone = 'UTC'")

    def read(self, table: Table) -> list[bytes]:
        """Insert the rows, and read them as a source `sql` does."""
        name = self._create(table, "id bigint GENERATED ALWAYS AS IDENTITY")
        columns = SQL(", ").join(map(Identifier, table.columns))
        values = SQL(", ").join([SQL("%s")] * len(table.columns))
        insert = SQL("INSERT INTO {} ({}) VALUES ({})").format(Identifier(name), columns, values)
        with self._connection.cursor() as cursor:
            cursor.executemany(insert, [[row[column] for column in table.columns] for row in table.rows])
        source = SqlSource.model_validate(
            {
                "kind": "sql",
                "database": {
                    "host": "127.0.0.1", "port": self._server.port, "name": "postgres", "user": USER,
                    "password_file": str(self._password),
                },
                "table": name,
                "column": "id",
            }
        )  # fmt: skip

        async def read() -> list[bytes]:
            async with postgres_rows(source, "test", 1_000_000, "p") as rows:
                page = await rows.page(None, str(len(table.rows)), 1000)
            return [row.data or b"" for row in page.rows]

        data = self._runner.run(read())
        self._drop(name)
        return data

    def write(self, table: Table, data: list[bytes]) -> Rows:
        """Write events with the kind `postgres`, and select the rows."""
        name = self._create(table, "hifi_log uuid, hifi_partition integer, hifi_offset bigint")
        self._connection.execute(
            SQL("CREATE UNIQUE INDEX ON {} (hifi_log, hifi_partition, hifi_offset)").format(Identifier(name))
        )
        columns = {column: column for column in table.columns}
        settings = {"url": {"env": URL}, "table": name, "mode": "append", "columns": columns}
        destination = ConnectorDestination.model_validate(
            {"name": "d", "kind": "postgres", "settings": settings}
        )
        kind, declared_settings = read_settings(destination)

        async def write() -> None:
            writer = kind.open(declared_settings, WriterContext("s", "p", "d", 1, 30.0))
            await writer.write([outbound(offset, text) for offset, text in enumerate(data)])
            await writer.close()

        self._runner.run(write())
        selected = SQL(", ").join(map(Identifier, table.columns))
        query = SQL("SELECT {} FROM {} ORDER BY hifi_offset").format(selected, Identifier(name))
        rows = self._connection.execute(query).fetchall()
        self._drop(name)
        return [dict(zip(table.columns, row, strict=True)) for row in rows]

    def _create(self, table: Table, other_columns: str) -> str:
        name = f"t{uuid.uuid4().hex[:12]}"
        columns = ", ".join(f'"{column}" {COLUMNS[kind]}' for column, kind in table.columns.items())
        self._connection.execute(f"CREATE UNLOGGED TABLE {name} ({other_columns}, {columns})".encode())
        return name

    def _drop(self, name: str) -> None:
        self._connection.execute(SQL("DROP TABLE {}").format(Identifier(name)))


@contextlib.contextmanager
def lake_session(folder: Path) -> Iterator[SparkSession]:
    """Spark as lake runs it."""
    scratch = folder / "spark"
    scratch.mkdir()
    spark = start_session(LakeSettings(kafka="127.0.0.1:1", stream="s", lake_master="local[1]"), scratch)
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        stop_spark(spark)


class Iceberg:
    """New tables of a warehouse."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def write(self, table: Table, data: list[bytes]) -> Rows:
        """Write files with Spark, commit them, and scan the table with pyiceberg."""
        settings = IcebergSettings(
            warehouse=str(self._folder / "lake"), table=f"shop.t{uuid.uuid4().hex}", partition="none"
        )
        columns = {name: LAKE[kind] for name, kind in table.columns.items()}
        lake_table = LakeTable("p", "lake", settings, columns)
        writer = uuid.uuid4().hex
        owner = TableOwner(LOG, lake_table.pipe, lake_table.destination)
        commits = TableCommits(open_table(lake_table), owner, writer, 10)
        scratch = self._folder / writer
        scratch.mkdir()
        store = FileStore(commits.table, owner, writer, scratch)
        files = StoredFiles(self._spark, commits, store, 1_000_000)
        schema = (
            "value binary, headers array<struct<key string, value binary>>, accepted_us bigint, seq string,"
            " partition int, raw bigint"
        )
        records: list[tuple[Any, ...]] = [
            (text, [], 0, f"s:{index}", 0, index) for index, text in enumerate(data)
        ]
        rows = with_rows(self._spark.createDataFrame(records, schema), lake_table, LOG)
        progress = TableProgress({0: PartitionProgress(len(data), len(data) - 1)})
        commits.append(files.write(rows.select(f"{ROW}.*"), len(data)), progress)
        stored_rows = commits.table.scan().to_arrow().sort_by("hifi_offset").to_pylist()
        return [
            {name: _of_column(row[name], kind) for name, kind in table.columns.items()} for row in stored_rows
        ]


def _of_column(value: Any, kind: str) -> Any:
    if value is None or LAKE[kind] is not SqlType.STRING:
        return value if not isinstance(value, datetime) else value.astimezone(UTC)
    return of_json(exact_json.loads(value) if kind == "list" else value, kind)
