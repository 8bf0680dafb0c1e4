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
from hifi_iceberg.declaration import SEQ, LakeTable
from hifi_iceberg.destination.catalog import open_table
from hifi_iceberg.destination.commits import TableCommits
from hifi_iceberg.destination.file_store import FileStore
from hifi_iceberg.destination.progress import TableProgress
from hifi_lake.batch.deliveries import beyond, without_copies
from hifi_lake.batch.merge import affected_files, merged, newest_by_key
from hifi_lake.batch.stored_files import StoredFiles
from hifi_lake.batch.table_rows import REFUSAL, ROW, with_rows
from hifi_lake.settings import LakeSettings

logger = log.get(__name__)


class TableWriter:
    """Writes one table, as long as no other instance takes it over."""

    def __init__(
        self,
        declared: LakeTable,
        log: str,
        settings: LakeSettings,
        spark: SparkSession,
        scratch: Path,
        settled_until: Callable[[], str | None],
    ) -> None:
        """Open the table, take it over, and delete the files that a killed instance left behind.

        Args:
            declared: the table.
            log: identity of the stream's log.
            settings: of the service.
            spark: session.
            scratch: folder for temporary files.
            settled_until: see `TableCommits`.

        Raises:
            Misconfigured: see `open_table`.
            Retryable: others commit all the time.
        """
        self.declared: Final = declared
        self._log = log
        self._settings = settings
        writer = uuid4().hex
        self._commits: Final = TableCommits(
            open_table(declared), log, writer, settings.lake_commit_attempts, settled_until
        )
        self._store = FileStore(self._commits.table, log, writer, scratch)
        self._files = StoredFiles(spark, self._commits, self._store, settings.lake_file_rows)
        deleted = self._store.delete_unreferenced()
        logger.info("table-taken-over", table=self._commits.name, deleted_files=deleted)

    @property
    def progress(self) -> TableProgress:
        """How far the table is."""
        return self._commits.progress

    def first_copies(self, deliveries: DataFrame, start: Mapping[int, int]) -> DataFrame:
        """The first copies among the deliveries of the table, with the columns of `with_rows`.

        Those that the table has already are among them: their receipts may be missing.

        Args:
            deliveries: of the table.
            start: partition to the offset of the first record of the batch.
        """
        first = without_copies(deliveries, self._commits.progress_at(start))
        rows = with_rows(first, self.declared, self._log)
        new = sql.expr(beyond(self.progress))
        replayed = [str(row.seq) for row in rows.filter(new & ~sql.col("ranked")).select("seq").collect()]
        stored_seqs = self._seqs_in_table(replayed) if replayed else []
        return rows.filter(~(new & sql.col("seq").isin(stored_seqs))) if stored_seqs else rows

    def commit(self, rows: DataFrame, end: Mapping[int, int]) -> int:
        """Commit the rows that the table does not have yet.

        Args:
            rows: as `first_copies` returns them.
            end: partition to the offset after the last record of the batch.

        Returns:
            How many deliveries are no rows of the table.

        Raises:
            Fenced: another instance writes the table.
            Retryable: repeat the batch.
        """
        started_s = monotonic_s()
        is_new = f"`{REFUSAL}` is null and {beyond(self.progress)}"
        counted = _count(rows, is_new)
        refused = sum(int(partition_counts.refused) for partition_counts in counted)
        total = sum(int(partition_counts.new) for partition_counts in counted)
        if not total:
            return refused
        new = rows.filter(is_new)
        tops = {
            partition_counts.partition: partition_counts.raw
            for partition_counts in counted
            if partition_counts.new
        }
        progress = self.progress.advanced(end, tops)
        if self.declared.settings.mode == "append":
            self._commits.append(self._files.write(new.select(f"{ROW}.*"), total), progress)
        else:
            self._merge(new, total, progress)
        seconds = monotonic_s() - started_s
        metrics.LAKE_COMMIT_SECONDS.observe(seconds)
        metrics.LAKE_ROWS.labels(self.declared.pipe, self.declared.destination).inc(total)
        logger.info("table-committed", table=self._commits.name, events=total, seconds=round(seconds, 3))
        return refused

    def maintain(self) -> None:
        """Replace many small files of a partition by few, and delete old snapshots with their files.

        Raises:
            Fenced, Retryable: as `commit`.
        """
        settings = self._settings
        small = [
            file
            for file in self._files.matching(AlwaysTrue())
            if file.record_count < settings.lake_file_rows / 2
        ]
        small.sort(key=lambda file: repr(file.partition))
        for _, members in groupby(small, key=lambda file: repr(file.partition)):
            files = list(members)
            if len(files) >= settings.lake_compact_files:
                count = sum(file.record_count for file in files)
                self._commits.replace(files, self._files.write(self._files.read(files), count), self.progress)
                logger.info("table-compacted", table=self._commits.name, files=len(files), rows=count)
        expired = self._commits.expire(settings.lake_keep_snapshots, settings.lake_keep_snapshots_s)
        if expired:
            deleted = self._store.delete_unreferenced()
            logger.info(
                "snapshots-expired", table=self._commits.name, snapshots=expired, deleted_files=deleted
            )

    def _merge(self, new: DataFrame, total: int, progress: TableProgress) -> None:
        newest = newest_by_key(new, self.declared, self._files.types).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            old = affected_files(newest, self.declared, self._files)
            rows = merged(newest, self._files.read(old), self.declared)
            new_files = self._files.write(rows, total + sum(file.record_count for file in old))
            self._commits.replace(old, new_files, progress)
        finally:
            newest.unpersist()

    def _seqs_in_table(self, replayed: Sequence[str]) -> list[str]:
        """Identities of replayed events that the table has: their offset in `raw` does not tell copies."""
        scan = self._commits.table.scan(
            row_filter=In(term=SEQ, literals=set(replayed)), selected_fields=(SEQ,)
        )
        return [str(seq) for seq in scan.to_arrow()[SEQ].to_pylist()]


def _count(rows: DataFrame, is_new: str) -> list[Row]:
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
