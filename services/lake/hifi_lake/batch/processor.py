"""One micro-batch: its deliveries to the tables, then their receipts, then the offsets of the group.

Data and progress of a table are committed together, receipts after that, the offsets of the group last. Whenever the
service is killed, the next run reads the batch again from the offsets of the group: rows that a table has are not
written again, and deliveries with a receipt get no other one.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sql

from hifi.kafka.group_offsets import GroupOffsets, StartOffsets
from hifi.kafka.topics import Topics
from hifi.pipe.revision import PIPE_UNREADABLE
from hifi.record.spark_sql import literal
from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Fenced, Retryable
from hifi.spark.kafka_connector import write_records
from hifi_iceberg.destination.progress import TableProgress
from hifi_lake.batch import outcomes
from hifi_lake.batch.batch_size import naming_lack_of_space
from hifi_lake.batch.deliveries import UNPUBLISHED, beyond, deliveries, parse, without_copies
from hifi_lake.batch.observed import observed
from hifi_lake.batch.table_rows import REFUSAL
from hifi_lake.batch.table_writer import TableWriter
from hifi_lake.recorded import RecordedDeliveries, TableName
from hifi_lake.settings import LakeSettings
from hifi_lake.stream import LakeStream

_MAINTENANCE_BATCHES: Final = 20
"""Batches with rows after which a table is maintained."""
_CHECK: Final = "check"
"""Column of the check of a delivery that has a receipt, as `RecordedPartition` has it."""
_REVISION_ATTEMPTS: Final = 4
"""Of 30 s each: after 60 s it is known whether a revision was never published."""

logger = log.get(__name__)


class BatchProcessor:
    """Handles the batches of one run of the query, in their order."""

    def __init__(
        self,
        spark: SparkSession,
        settings: LakeSettings,
        topics: Topics,
        stream: LakeStream,
        scratch: Path,
    ) -> None:
        """Open no table yet.

        Args:
            spark: session.
            settings: of the service.
            topics: of the stream.
            stream: for pipes, receipts and offsets.
            scratch: folder for temporary files.
        """
        self._spark = spark
        self._settings = settings
        self._topics = topics
        self._stream = stream
        self._scratch = scratch
        self._writers: dict[TableName, TableWriter] = {}
        self._batch_counts: dict[TableName, int] = {}
        self._recorded: RecordedDeliveries | None = None
        self._floors: Mapping[int, str] = {}
        """Partition to the offset in `receipts` from which on a run reads that starts where this one is."""

    def process(
        self, records: DataFrame, start: StartOffsets, end: Mapping[int, int], offsets: GroupOffsets
    ) -> None:
        """Handle a batch.

        Args:
            records: of `enriched`.
            start: offsets of the first records; in the first batch of a run with the metadata of the last commit.
            end: partition to the offset after its last record.
            offsets: of the group.

        Raises:
            Fenced: another instance has taken over.
            Retryable: repeat the batch; the tables that could be written have it.
        """
        self._stream.require_leadership()
        self._stream.read_held_tables()
        if self._recorded is None:
            self._floors = {
                partition: metadata for partition, metadata in start.notes.items() if metadata.isdecimal()
            }
            floors = {partition: int(metadata) for partition, metadata in self._floors.items()}
            self._recorded = self._stream.recorded(start.offsets, floors)
        fetched_us = now_us()
        delivery_rows = self._deliveries(records)
        failure_reasons: dict[TableName, str] = {}
        try:
            for row in delivery_rows.groupBy("pipe", "destination").count().collect():
                name = (row.pipe, row.destination)
                table_deliveries = delivery_rows.filter(
                    f"pipe = {literal(row.pipe)} and destination = {literal(row.destination)}"
                )
                try:
                    self._process_table(name, table_deliveries, start.offsets, end, fetched_us)
                except Fenced:
                    raise
                except Exception as error:  # of the catalog, the warehouse or Spark: other tables go on
                    logger.exception("table-failed", pipe=name[0], destination=name[1])
                    self._writers.pop(name, None)
                    first_line = str(error).partition("\n")[0][:300]
                    failure_reasons[name] = naming_lack_of_space(
                        f"{type(error).__name__}: {first_line}", str(error)
                    )
        finally:
            delivery_rows.unpersist()
        for name in self._stream.names():
            self._stream.warn(name, failure_reasons.get(name))
        if failure_reasons:
            raise Retryable(
                "; ".join(f"{'/'.join(name)}: {reason}" for name, reason in failure_reasons.items())
            )
        self._recorded.forget_before(end)
        if (
            not self._recorded
        ):  # else an earlier run got further in a table, and its receipts stand before this place
            self._floors = {partition: str(floor) for partition, floor in self._stream.receipts_end().items()}
        self._stream.commit(offsets, end, self._floors)

    def maintain(self) -> None:
        """Compact the tables that have had many batches, and expire their snapshots.

        A failure is logged: the next maintenance repeats it.
        """
        for name, batches in self._batch_counts.items():
            writer = self._writers.get(name)
            if batches >= _MAINTENANCE_BATCHES and writer is not None:
                self._batch_counts[name] = 0
                try:
                    writer.maintain()
                except Fenced:
                    raise
                except Exception:
                    logger.exception("maintenance-failed", pipe=name[0], destination=name[1])
                    self._writers.pop(name)

    def _deliveries(self, records: DataFrame) -> DataFrame:
        """The deliveries to tables, cached, once the pipes that the events need are known.

        Raises:
            Retryable: a revision does not arrive that may have been published, or Spark does not tell what it read.
        """
        for _ in range(_REVISION_ATTEMPTS):
            table_names = self._stream.names()
            observation = Observation()
            parsed_records = parse(records, self._stream.pipes_end).observe(
                observation,
                sql.max(sql.expr(f"if({UNPUBLISHED}, null, revision_offset)")).alias("revision_offset"),
            )
            delivery_rows = deliveries(parsed_records, sorted(table_names)).persist(
                StorageLevel.MEMORY_AND_DISK
            )
            is_usable = False
            try:
                delivery_rows.count()
                revision_offset = int(observed(observation).get("revision_offset") or -1)
                is_usable = (
                    self._stream.has_revisions_to(revision_offset) and table_names == self._stream.names()
                )
            finally:
                if not is_usable:
                    delivery_rows.unpersist()
            if is_usable:
                return delivery_rows
        raise Retryable(
            f"offset {revision_offset} of the topic pipes has not arrived, or tables were declared meanwhile"
        )

    def _process_table(
        self,
        name: TableName,
        table_deliveries: DataFrame,
        start: Mapping[int, int],
        end: Mapping[int, int],
        fetched_us: int,
    ) -> None:
        if not self._stream.is_declared(name):
            rows = without_copies(table_deliveries, TableProgress()).withColumn(
                REFUSAL, sql.lit(PIPE_UNREADABLE)
            )
            self._stream.require_leadership()
            self._write_refusals(self._without_receipt(rows, name), fetched_us)
            return
        writer = self._table_writer(name)
        rows = writer.first_copies(table_deliveries, start)
        is_held = sql.lit(self._stream.is_held(name[0])) | sql.col(UNPUBLISHED)
        rows = rows.withColumn(
            REFUSAL,
            sql.when(is_held & sql.expr(beyond(writer.progress)), PIPE_UNREADABLE).otherwise(
                sql.col(REFUSAL)
            ),
        )
        self._stream.require_leadership()
        sent_us = now_us()
        refused_count = writer.commit(rows, end)
        answered_us = now_us()
        unrecorded_rows = self._without_receipt(rows, name)
        receipts = outcomes.receipts(
            unrecorded_rows.filter(f"`{REFUSAL}` is null"), fetched_us, sent_us, answered_us
        )
        if refused_count:
            self._write_refusals(unrecorded_rows.filter(f"`{REFUSAL}` is not null"), fetched_us)
        self._write(receipts, self._topics.receipts)
        self._batch_counts[name] = self._batch_counts.get(name, 0) + 1

    def _write_refusals(self, refused_rows: DataFrame, fetched_us: int) -> None:
        """Write the dead letters of deliveries that are no rows of their table, then the receipts."""
        self._write(outcomes.dead_letters(refused_rows, fetched_us), self._topics.dead_letter)
        self._write(outcomes.refusals(refused_rows, fetched_us), self._topics.receipts)

    def _table_writer(self, name: TableName) -> TableWriter:
        """The writer of a table by its present declaration."""
        table = self._stream.table(name)
        writer = self._writers.get(name)
        if writer is None or writer.table != table:
            writer = TableWriter(
                table,
                self._stream.log(),
                self._stream.enriched_id(),
                self._settings,
                self._spark,
                self._scratch,
                partial(self._stream.settled_until, table),
            )
            self._writers[name] = writer
        return writer

    def _without_receipt(self, rows: DataFrame, name: TableName) -> DataFrame:
        recorded_deliveries = {} if self._recorded is None else self._recorded.of_table(name)
        if not recorded_deliveries:
            return rows
        columns_by_partition = [
            {
                "partition": pa.repeat(pa.scalar(partition, pa.int32()), len(recorded.offsets)),
                "offset": pa.array(recorded.offsets),
                _CHECK: pa.array(recorded.checks, pa.int64()),
            }
            for partition, recorded in recorded_deliveries.items()
        ]
        recorded_rows = self._spark.createDataFrame(
            pa.concat_tables([pa.table(columns) for columns in columns_by_partition])
        )
        checked_rows = rows.withColumn(_CHECK, sql.expr("crc32(cast(seq as binary))"))
        return checked_rows.join(
            sql.broadcast(recorded_rows), ["partition", "offset", _CHECK], "left_anti"
        ).drop(_CHECK)

    def _write(self, records: DataFrame, topic: str) -> None:
        write_records(records.withColumn("topic", sql.lit(topic)), self._settings)
