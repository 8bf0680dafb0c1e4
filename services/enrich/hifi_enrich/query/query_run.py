"""One run of the streaming query, from given offsets until it is stopped or fails.

Its checkpoint is deleted with it: the next run starts at the offsets committed to Kafka, see
docs/decisions/enrich-offsets.md.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from hifi.pipe.model import QueryTrigger
from hifi.spark.kafka_connector import sink_options
from hifi_enrich.settings import EnrichSettings

BATCH_INTERVAL_MS: Final = 300
"""Time between starts of micro-batches. Starting a batch costs most of its CPU time; with few cores more batches would
make events later, not earlier."""


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """A batch whose records have all been acknowledged by Kafka."""

    batch: int
    end: dict[int, int]
    """Partition to the offset after the last record of the batch."""
    records: int
    duration_ms: int


class QueryRun:
    """A running query."""

    def __init__(
        self,
        records: DataFrame,
        settings: EnrichSettings,
        checkpoint: Path,
        trigger: QueryTrigger,
        interval_ms: int,
    ) -> None:
        """Start the query.

        Args:
            records: to write, with the topic of each record.
            settings: of the service.
            checkpoint: a folder that does not exist yet.
            trigger: of the query.
            interval_ms: length of a real-time batch, or time between starts of micro-batches, milliseconds; a
                longer micro-batch delays the next one.
        """
        self.trigger: Final[QueryTrigger] = trigger
        self._checkpoint = checkpoint
        writer = records.writeStream.format("kafka").options(**sink_options(settings))
        writer = writer.option("checkpointLocation", str(checkpoint))
        if trigger == "real-time":
            writer = writer.outputMode("update").trigger(  # type: ignore[call-overload] # missing in its overloads
                realTime=f"{interval_ms} milliseconds"
            )
        else:
            writer = writer.outputMode("append").trigger(processingTime=f"{interval_ms} milliseconds")
        self._query: StreamingQuery = writer.start()
        self._last_batch = -1

    @property
    def active(self) -> bool:
        """Whether it has neither failed nor been stopped."""
        return bool(self._query.isActive)

    @property
    def idle(self) -> bool:
        """Whether no batch is running at this moment."""
        return not self._query._jsq.status().isTriggerActive()  # noqa: SLF001

    def finished_batch(self) -> FinishedBatch | None:
        """The last batch, if it finished after the previous call. Cheap enough to be polled."""
        progress: Any = self._query._jsq.lastProgress()  # noqa: SLF001 - avoids parsing all of it
        if progress is None or progress.batchId() == self._last_batch:
            return None
        source = progress.sources()[0]
        if source.endOffset() is None or not progress.durationMs().containsKey("addBatch"):
            return None  # a progress report of an idle query
        self._last_batch = progress.batchId()
        offsets = json.loads(source.endOffset())
        end_offsets = {
            int(partition): int(offset) for partition, offset in next(iter(offsets.values())).items()
        }
        duration_ms = int(progress.durationMs().get("triggerExecution") or 0)
        return FinishedBatch(self._last_batch, end_offsets, source.numInputRows(), duration_ms)

    def error(self) -> str | None:
        """The error with which the query failed; None: it did not fail."""
        error: StreamingQueryException | None = self._query.exception()
        return None if error is None else str(error)

    def stop(self) -> None:
        """Stop at once. The next run repeats an unfinished batch."""
        self._query.stop()
        shutil.rmtree(self._checkpoint, ignore_errors=True)
