"""Reads what stands at destinations: the data of each event or row, as JSON values."""

import asyncio
import gzip
import io
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import psycopg
import pyarrow.parquet as pq
from aiokafka import AIOKafkaConsumer, TopicPartition
from psycopg.rows import dict_row
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.exc import OperationalError

Rows: TypeAlias = list[dict[str, Any]]


async def in_topic(bootstrap: str, topic: str, decode: Callable[[bytes], Any] = orjson.loads) -> Rows:
    """Values of all committed records of a topic."""
    options: dict[str, Any] = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", **options
    ) as consumer:
        await consumer._client._wait_on_metadata(topic)
        tps = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(tps)
        end_offsets = await consumer.end_offsets(tps)
        rows: Rows = []
        for tp in tps:
            while await consumer.position(tp) < end_offsets[tp]:
                for records in (await consumer.getmany(tp, timeout_ms=500)).values():
                    rows += [decode(record.value) for record in records]
        return rows


async def in_table(url: str, query: str) -> Rows:
    """Rows of a query to PostgreSQL."""
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
        cursor = await connection.execute(query.encode())
        return await cursor.fetchall()


def in_objects(objects: Iterable[tuple[str, bytes]]) -> Rows:
    """Rows of the NDJSON and Parquet objects of a destination, given their names and contents."""
    rows: Rows = []
    for name, content in objects:
        if name.endswith(".parquet"):
            rows += pq.read_table(io.BytesIO(content)).to_pylist()
        else:
            text = gzip.decompress(content) if name.endswith(".gz") else content
            rows += [orjson.loads(line) for line in text.splitlines()]
    return rows


async def in_folder(folder: Path) -> Rows:
    """Rows of the objects of a folder."""
    files = [path for path in folder.rglob("[!.]*") if path.is_file()]
    return await asyncio.to_thread(lambda: in_objects((path.name, path.read_bytes()) for path in files))


async def in_lake(warehouse: Path, table: str, columns: tuple[str, ...]) -> Rows:
    """Rows of an Iceberg table of a warehouse folder; none where the table does not exist yet."""

    def read() -> Rows:
        if not (warehouse / "catalog.db").exists():
            return []
        catalog = SqlCatalog("hifi", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=warehouse.as_uri())
        try:
            rows: Rows = catalog.load_table(table).scan(selected_fields=columns).to_arrow().to_pylist()
        except (NoSuchTableError, OperationalError, sqlite3.OperationalError):
            return []
        return rows

    return await asyncio.to_thread(read)
