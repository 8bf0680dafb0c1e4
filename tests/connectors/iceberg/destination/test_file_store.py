"""Data files become part of a table only if this process sees all rows that Spark wrote."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from hifi.pipe.model import SqlType
from hifi.runtime.errors import Retryable
from hifi_iceberg.declaration import IcebergSettings, LakeTable
from hifi_iceberg.destination.catalog import open_table
from hifi_iceberg.destination.file_store import FileStore
from hifi_iceberg.destination.progress import TableOwner


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    settings = IcebergSettings(warehouse=str(tmp_path / "lake"), table="shop.orders", partition="none")
    table = open_table(LakeTable("p", "lake", settings, {"id": SqlType.INT}))
    return FileStore(table, TableOwner("0b" * 16, "p", "lake"), "w", tmp_path)


def _write(folder: Path, name: str, row_count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table({"id": pa.array(range(row_count), pa.int32())}), folder / name)


def test_rows_that_spark_wrote_on_other_machines_are_no_commit_without_them(store: FileStore) -> None:
    folder = Path(store.new_folder())
    with pytest.raises(Retryable, match=r"Spark wrote 3 rows to the folder .* are 0 files with 0 rows"):
        store.publish(str(folder), 3)
    _write(folder, "a.parquet", 2)
    with pytest.raises(Retryable, match="all of Spark's executors must have this folder"):
        store.publish(str(folder), 3)
    _write(folder / "day=2026-01-01", "b.parquet", 1)
    assert store.publish(str(folder), 3) == [
        f"file://{folder}/a.parquet",
        f"file://{folder}/day=2026-01-01/b.parquet",
    ]


def test_a_merge_that_keeps_no_row_needs_no_file(store: FileStore) -> None:
    assert store.publish(store.new_folder(), 0) == []
