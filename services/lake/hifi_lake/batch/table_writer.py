"""Writes the deliveries of one table: Spark writes the files, the driver commits them."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final
from uuid import uuid4

from pyiceberg.expressions import AlwaysTrue, In
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql

from hifi.runtime import log, metrics
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import Misconfigured
from hifi.spark.spark_session import task_slots
from hifi_iceberg.declaration import SEQ, LakeTable
from hifi_iceberg.destination.catalog import open_table
from hifi_iceberg.destination.commits import TableCommits
from hifi_iceberg.destination.file_store import FileStore, is_folder
from hifi_iceberg.destination.progress import TableOwner, TableProgress
from hifi_lake.batch.deliveries import beyond, without_copies
from hifi_lake.batch.merge import affected_files, merged, newest_by_key
from hifi_lake.batch.stored_files import StoredFiles
from hifi_lake.batch.table_rows import REFUSAL, ROW, with_rows
from hifi_lake.settings import LakeSettings

logger = log.get(__name__)


class TableWriter:
    """Writes one table until another instance takes it over."""

    def __init__(
        self,
        table: LakeTable,
        log_identity: str,
        topic: str,
        settings: LakeSettings,
        spark: SparkSession,
        scratch: Path,
        settled_until: Callable[[], str | None],
    ) -> None:
        """Open the table, take it over, and delete the files that a killed instance left behind.

        Args:
            table: the table.
            log_identity: identity of the stream's log.
            topic: id of the topic `enriched`.
            settings: of the service.
            spark: session.
            scratch: folder for temporary files.
            settled_until: see `TableCommits`.

        Raises:
            Misconfigured: see `open_table` and `require_reachable`.
            Retryable: other writers commit all the time.
            Fenced: another instance has taken the table over meanwhile.
        """
        self.table: Final = table
        self._log = log_identity
        self._settings = settings
        opened_table = open_table(table)
        require_reachable(opened_table.location(), settings.lake_master)
        writer_id = uuid4().hex
        owner = TableOwner(log_identity, table.pipe, table.destination)
        self._commits: Final = TableCommits(
            opened_table, owner, writer_id, settings.lake_commit_attempts, settled_until, topic
        )
        self._store = FileStore(self._commits.table, owner, writer_id, scratch)
        self._files = StoredFiles(spark, self._commits, self._store, settings.lake_file_rows)
        deleted_files = self._store.delete_unreferenced(self._commits.require_ownership)
        logger.info("table-taken-over", table=self._commits.name, deleted_files=deleted_files)

    @property
    def progress(self) -> TableProgress:
        """The progress of the table."""
        return self._commits.progress

    def first_copies(self, deliveries: DataFrame, start: Mapping[int, int]) -> DataFrame:
        """The first copies among the deliveries of the table, with the columns of `with_rows`.

        Deliveries that the table has already are among them: their receipts may be missing.

        Args:
            deliveries: of the table.
            start: partition to the offset of the first record of the batch.
        """
        first_deliveries = without_copies(deliveries, self._commits.progress_at(start))
        rows = with_rows(first_deliveries, self.table, self._log)
        is_new = sql.expr(beyond(self.progress))
        replayed_seqs = [
            str(row.seq) for row in rows.filter(is_new & ~sql.col("ranked")).select("seq").collect()
        ]
        stored_seqs = self._seqs_in_table(replayed_seqs) if replayed_seqs else []
        return rows.filter(~(is_new & sql.col("seq").isin(stored_seqs))) if stored_seqs else rows

    def commit(self, rows: DataFrame, end: Mapping[int, int]) -> int:
        """Commit the rows that the table does not have yet.

        Args:
            rows: as `first_copies` returns them.
            end: partition to the offset after the last record of the batch.

        Returns:
            Number of deliveries that are no rows of the table.

        Raises:
            Fenced: another instance writes the table.
            Retryable: repeat the batch.
        """
        started_s = monotonic_s()
        is_new = f"`{REFUSAL}` is null and {beyond(self.progress)}"
        partition_counts = _count_rows(rows, is_new)
        refused_count = sum(int(counts.refused) for counts in partition_counts)
        new_count = sum(int(counts.new) for counts in partition_counts)
        if not new_count:
            return refused_count
        new_rows = rows.filter(is_new)
        highest_raws = {counts.partition: counts.raw for counts in partition_counts if counts.new}
        progress = self.progress.advanced(end, highest_raws)
        if self.table.settings.mode == "append":
            self._commits.append(self._files.write(new_rows.select(f"{ROW}.*"), new_count), progress)
        else:
            self._merge(new_rows, new_count, progress)
        commit_seconds = monotonic_s() - started_s
        metrics.LAKE_COMMIT_SECONDS.observe(commit_seconds)
        metrics.LAKE_ROWS.labels(self.table.pipe, self.table.destination).inc(new_count)
        logger.info(
            "table-committed", table=self._commits.name, events=new_count, seconds=round(commit_seconds, 3)
        )
        return refused_count

    def maintain(self) -> None:
        """Replace many small files of a partition by few, and delete old snapshots with their files.

        Raises:
            Fenced, Retryable: as `commit`.
        """
        settings = self._settings
        self._commits.require_ownership()  # another destination may have replaced files of the table
        small_files = [
            file
            for file in self._files.matching(AlwaysTrue())
            if file.record_count < settings.lake_file_rows / 2
        ]
        small_files.sort(key=lambda file: repr(file.partition))
        for _, members in groupby(small_files, key=lambda file: repr(file.partition)):
            files = list(members)
            if len(files) >= settings.lake_compact_files:
                row_count = sum(file.record_count for file in files)
                self._commits.replace(
                    files, self._files.write(self._files.read(files), row_count), self.progress
                )
                logger.info("table-compacted", table=self._commits.name, files=len(files), rows=row_count)
        expired_snapshots = self._commits.expire(settings.lake_keep_snapshots, settings.lake_keep_snapshots_s)
        if expired_snapshots:
            deleted_files = self._store.delete_unreferenced(self._commits.require_ownership)
            logger.info(
                "snapshots-expired",
                table=self._commits.name,
                snapshots=expired_snapshots,
                deleted_files=deleted_files,
            )

    def _merge(self, new_rows: DataFrame, new_count: int, progress: TableProgress) -> None:
        self._commits.require_ownership()  # another destination may have written rows of the same keys
        newest = newest_by_key(new_rows, self.table, self._files.types).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            replaced_files = affected_files(newest, self.table, self._files)
            rows = merged(newest, self._files.read(replaced_files), self.table)
            new_files = self._files.write(rows, new_count + sum(file.record_count for file in replaced_files))
            self._commits.replace(replaced_files, new_files, progress)
        finally:
            newest.unpersist()

    def _seqs_in_table(self, replayed_seqs: Sequence[str]) -> list[str]:
        """Identities of replayed events that the table has: their offset in `raw` does not identify copies."""
        scan = self._commits.table.scan(
            row_filter=In(term=SEQ, literals=set(replayed_seqs)), selected_fields=(SEQ,)
        )
        return [str(seq) for seq in scan.to_arrow()[SEQ].to_pylist()]


def require_reachable(location: str, master: str) -> None:
    """Refuse a table whose data files Spark's tasks do not reach. Pure.

    Args:
        location: URL or path of the table.
        master: Spark's.

    Raises:
        Misconfigured: it is in a bucket, where only the process of lake writes, and the tasks run elsewhere.
    """
    if not is_folder(location) and task_slots(master) is None:
        raise Misconfigured(
            f"the table is at {location}, but with HIFI_LAKE_MASTER={master} Spark's tasks run on other machines, and "
            "only the process of lake writes to buckets: set HIFI_LAKE_MASTER to local[N] (in the Helm chart "
            "services.lake.executors.instances to 0), or choose a warehouse in a folder that all of them mount"
        )


def _count_rows(rows: DataFrame, is_new: str) -> list[Row]:
    """For each partition the number of new and of refused rows, and of the new ones the highest `raw`.

    Args:
        rows: with the columns of `with_rows`.
        is_new: SQL of whether a row is to be committed.
    """
    return (
        rows.withColumn("is_new", sql.expr(is_new))
        .groupBy("partition")
        .agg(
            sql.count_if("is_new").alias("new"),
            sql.count_if(sql.col(REFUSAL).isNotNull()).alias("refused"),
            sql.max(sql.expr("if(is_new and ranked, raw, -1)")).alias("raw"),
        )
        .collect()
    )
