"""One run of the streaming query over `enriched`, from given offsets until it is stopped or fails.

Its checkpoint is deleted with it: the next run starts at the offsets of the group, and what the tables have already is
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
from hifi_lake.settings import LakeSettings

HandleBatch: TypeAlias = Callable[[DataFrame, StartOffsets, Mapping[int, int]], None]
"""Handles the records of a batch: where it starts, and partition to the offset after its last record."""


class LakeQuery:
    """A running query."""

    def __init__(
        self,
        spark: SparkSession,
        settings: LakeSettings,
        topic: str,
        start: StartOffsets,
        checkpoint: Path,
        handle: HandleBatch,
    ) -> None:
        """Start the query.

        Args:
            spark: session.
            settings: of the service.
            topic: to read.
            start: offsets of the first records.
            checkpoint: a folder that does not exist yet.
            handle: called for each batch in a thread of Spark's; what it raises ends the query.
        """
        self._checkpoint = checkpoint
        self._next = start
        self._handle = handle
        self.error_raised: BaseException | None = None
        """What `handle` raised."""
        options = source_options(settings, topic, start.offsets) | {
            "kafka.client.id": settings.instance,
            "maxOffsetsPerTrigger": str(settings.lake_max_offsets_per_commit),
        }
        records = spark.readStream.format("kafka").options(**options).load()
        self._query = (
            records.writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime=f"{round(settings.lake_interval_s * 1000)} milliseconds")
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
        """Why it failed; None: it did not."""
        error: StreamingQueryException | None = self._query.exception()
        if error is None:
            return None
        return repr(self.error_raised) if self.error_raised is not None else str(error)

    def stop(self) -> None:
        """Stop at once. The next run repeats an unfinished batch."""
        self._query.stop()
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    def _batch(self, records: DataFrame, number: int) -> None:
        end = self._end_of(number)
        try:
            self._handle(records, self._next, end)
        except BaseException as error:
            self.error_raised = error
            raise
        self._next = StartOffsets(dict(end), {})

    def _end_of(self, number: int) -> Mapping[int, int]:
        """The offsets at which a batch ends, which Spark has written to the checkpoint before the batch began."""
        log = (self._checkpoint / "offsets" / str(number)).read_text().splitlines()
        (offsets,) = json.loads(log[-1]).values()
        return {int(partition): int(offset) for partition, offset in offsets.items()}
