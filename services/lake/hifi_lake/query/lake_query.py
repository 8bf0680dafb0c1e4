"""One run of the streaming query over `enriched`, from given offsets until it is stopped or fails.

Its checkpoint is deleted with it: the next run starts at the offsets of the group, and rows that the tables have are
not written again (see docs/decisions/lake.md).
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from hifi.kafka.group_offsets import StartOffsets
from hifi.spark.kafka_connector import source_options
from hifi_lake.batch.batch_size import BatchSize, naming_lack_of_space
from hifi_lake.settings import LakeSettings

HandleBatch: TypeAlias = Callable[[DataFrame, StartOffsets, Mapping[int, int]], None]
"""Handles a batch: its records, its start offsets, and partition to the offset after its last record."""


class LakeQuery:
    """A running query."""

    def __init__(
        self,
        spark: SparkSession,
        settings: LakeSettings,
        size: BatchSize,
        topic: str,
        start: StartOffsets,
        checkpoint: Path,
        handle: HandleBatch,
    ) -> None:
        """Start the query.

        Args:
            spark: session.
            settings: of the service.
            size: of the batches.
            topic: to read.
            start: offsets of the first records.
            checkpoint: a folder that does not exist yet.
            handle: called for each batch in a thread of Spark's; an error that it raises ends the query.
        """
        self._checkpoint = checkpoint
        self._next_start = start
        self._handle = handle
        self.error_raised: BaseException | None = None
        """The error that `handle` raised."""
        options = source_options(settings, topic, start.offsets) | {
            "kafka.client.id": settings.instance,
            "maxOffsetsPerTrigger": str(size.records),
        }
        records = spark.readStream.format("kafka").options(**options).load()
        self._query = (
            records.writeStream.foreachBatch(self._handle_batch)
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime=f"{round(size.interval_s * 1000)} milliseconds")
            .start()
        )

    @property
    def active(self) -> bool:
        """Whether it has neither failed nor been stopped."""
        return bool(self._query.isActive)

    @property
    def idle(self) -> bool:
        """Whether no batch is running at this moment."""
        return not self._query._jsq.status().isTriggerActive()  # noqa: SLF001 - cheaper than `status`

    def error(self) -> str | None:
        """The error with which the query failed; None: it did not fail."""
        error: StreamingQueryException | None = self._query.exception()
        if error is None:
            return None
        if self.error_raised is None:
            return str(error)
        return naming_lack_of_space(repr(self.error_raised), f"{self.error_raised} {error}")

    def stop(self) -> None:
        """Stop at once. The next run repeats an unfinished batch."""
        self._query.stop()
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    def _handle_batch(self, records: DataFrame, batch_number: int) -> None:
        end_offsets = self._end_offsets(batch_number)
        try:
            self._handle(records, self._next_start, end_offsets)
        except BaseException as error:
            self.error_raised = error
            raise
        self._next_start = StartOffsets(dict(end_offsets), {})

    def _end_offsets(self, batch_number: int) -> Mapping[int, int]:
        """The end offsets of a batch, which Spark wrote to the checkpoint before the batch began."""
        log_lines = (self._checkpoint / "offsets" / str(batch_number)).read_text().splitlines()
        (offsets,) = json.loads(log_lines[-1]).values()
        return {int(partition): int(offset) for partition, offset in offsets.items()}
