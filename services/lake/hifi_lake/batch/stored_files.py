"""The data files of a table, read and written with Spark."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sql

from hifi.runtime.errors import Misconfigured
from hifi_iceberg.declaration import ACCEPTED, DAY
from hifi_iceberg.destination.catalog import spark_types
from hifi_iceberg.destination.commits import TableCommits
from hifi_iceberg.destination.file_store import FileStore
from hifi_lake.batch.observed import observed

_TASK_ROWS: Final = 200_000
"""Rows for each task that writes files."""


class StoredFiles:
    """The data files of one table."""

    def __init__(self, spark: SparkSession, commits: TableCommits, store: FileStore, file_rows: int) -> None:
        """Read and write nothing yet.

        Args:
            spark: session.
            commits: of the table.
            store: of its files.
            file_rows: maximum number of rows of a new file.
        """
        self._spark = spark
        self._commits = commits
        self._store = store
        self._file_rows = file_rows

    @property
    def types(self) -> Mapping[str, str]:
        """All columns that the table has, and their Spark SQL types."""
        return spark_types(self._commits.table)

    def matching(self, condition: BooleanExpression) -> list[DataFile]:
        """The files that, by the statistics in the catalog, may have rows for which a condition is true.

        Raises:
            Misconfigured: another writer has deleted rows of them by delete files, which Spark does not read here.
        """
        scan_tasks = list(self._commits.table.scan(row_filter=condition).plan_files())
        if any(scan_task.delete_files for scan_task in scan_tasks):
            raise Misconfigured(
                f"the table {self._commits.name} has delete files of another writer, so its data files cannot be "
                "written again here: let that writer compact the table"
            )
        return [scan_task.file for scan_task in scan_tasks]

    def read(self, files: Sequence[DataFile]) -> DataFrame:
        """The rows of files, with all columns of the table; columns that a file does not have are null."""
        schema = ", ".join(f"`{name}` {kind}" for name, kind in self.types.items())
        if not files:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(
            *self._store.readable([file.file_path for file in files])
        )

    @staticmethod
    def name_of(file: DataFile) -> str:
        """The name of a file without folders, which Spark has made unique."""
        return str(file.file_path).rpartition("/")[2]

    def write(self, rows: DataFrame, row_count: int) -> list[str]:
        """Write rows to new files, each of one partition of the table.

        Args:
            rows: with the columns of the table.
            row_count: their number, approximately.

        Returns:
            URLs of the files.

        Raises:
            Retryable: the files do not have all rows, or Spark does not tell how many it wrote.
        """
        parallel_tasks = min(self._spark.sparkContext.defaultParallelism, math.ceil(row_count / _TASK_ROWS))
        task_count = max(1, parallel_tasks, math.ceil(row_count / self._file_rows))
        observation = Observation()
        rows = rows.observe(observation, sql.count(sql.lit(1)).alias("rows"))
        writer = rows.coalesce(task_count).write
        if self._commits.table.spec().fields:
            writer = rows.withColumn(DAY, sql.to_date(ACCEPTED)).coalesce(task_count).write.partitionBy(DAY)
        folder = self._store.new_folder()
        writer.option("maxRecordsPerFile", self._file_rows).parquet(folder)
        return self._store.publish(folder, int(observed(observation)["rows"]))
