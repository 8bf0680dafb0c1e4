"""One run of the streaming query, from given offsets until it is stopped or dies.

Its checkpoint is thrown away with it: Kafka's committed offsets say where the next run starts, see
docs/decisions/enrich-offsets.md.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from hifi_enrich.session import slots
from hifi_enrich.settings import EnrichSettings

BATCH_EVERY_MS: Final = 300
"""A batch costs most by beginning, so more of them make events later where cores are few."""
_TASKS_PER_CORE: Final = 2
"""Of a micro-batch in this process: one waits for Kafka while the other works."""
_FETCH_WAIT_MS: Final = 1
"""Of a bounded read, whose records are all there. Spark's reader asks for the partition's offsets after each fetch, on
the connection on which Kafka's client already has the next fetch waiting for records that are not there yet."""

PartitionOffsets = Mapping[int, int]
"""Partition to the offset of the next record."""


@dataclass(frozen=True, slots=True)
class Done:
    """A batch that was written whole."""

    batch: int
    end: dict[int, int]
    """Partition to the offset after the last record of the batch."""
    records: int
    duration_ms: int


def read(spark: SparkSession, settings: EnrichSettings, topic: str, start: PartitionOffsets) -> DataFrame:
    """A stream of a topic's records with headers, from given offsets of all its partitions.

    A task of a micro-batch reads one partition after the other, so that many partitions are not as many tasks.
    """
    options = source_options(settings, topic, start) | {"kafka.client.id": settings.instance}
    if settings.enrich_trigger == "real-time":
        return spark.readStream.format("kafka").options(**options).load()
    options |= {
        "maxOffsetsPerTrigger": str(settings.enrich_max_offsets_per_trigger),
        "kafka.fetch.max.wait.ms": str(_FETCH_WAIT_MS),
    }
    records = spark.readStream.format("kafka").options(**options).load()
    if slots(spark.sparkContext.master or "") is None:
        return records  # a cluster has cores for all of them
    return records.coalesce(most_tasks())


def most_tasks() -> int:
    """Of a micro-batch, where this process does the work."""
    return _TASKS_PER_CORE * (os.cpu_count() or 1)


def read_range(
    spark: SparkSession, settings: EnrichSettings, topic: str, start: PartitionOffsets, end: PartitionOffsets
) -> DataFrame:
    """The records of a topic from `start` up to, not including, `end`, at once."""
    options = source_options(settings, topic, start) | {
        "endingOffsets": offsets_json(topic, end),
        "kafka.fetch.max.wait.ms": str(_FETCH_WAIT_MS),
    }
    return spark.read.format("kafka").options(**options).load()


def source_options(settings: EnrichSettings, topic: str, start: PartitionOffsets) -> dict[str, str]:
    """Options of Spark's Kafka source."""
    return {
        "kafka.bootstrap.servers": settings.kafka,
        "assign": json.dumps({topic: sorted(start)}),
        "startingOffsets": offsets_json(topic, start),
        "includeHeaders": "true",
        # Records that retention took away end the query, and the supervisor says which ones are lost.
        "failOnDataLoss": "true",
    }


def sink_options(settings: EnrichSettings) -> dict[str, str]:
    """Options of Spark's Kafka sink."""
    return {
        "kafka.bootstrap.servers": settings.kafka,
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        "kafka.linger.ms": "5",
        "kafka.batch.size": "131072",
        "kafka.compression.type": "lz4",
        "kafka.max.request.size": str(8 * 1024 * 1024),
        "kafka.delivery.timeout.ms": "60000",
        "kafka.request.timeout.ms": "15000",
        "kafka.max.block.ms": "30000",
    }


class Query:
    """A running query."""

    def __init__(
        self, frame: DataFrame, settings: EnrichSettings, checkpoint: Path, *, every_ms: int = BATCH_EVERY_MS
    ) -> None:
        """Start it.

        Args:
            frame: what is written, with its topic.
            settings: of the service.
            checkpoint: a folder that does not exist.
            every_ms: a micro-batch begins so often, or when the one before has ended; milliseconds.
        """
        self._checkpoint = checkpoint
        writer = frame.writeStream.format("kafka").options(**sink_options(settings))
        writer = writer.option("checkpointLocation", str(checkpoint))
        if settings.enrich_trigger == "real-time":
            writer = writer.outputMode("update").trigger(  # type: ignore[call-overload] # missing in its overloads
                realTime=f"{round(settings.enrich_batch_s * 1000)} milliseconds"
            )
        else:
            writer = writer.outputMode("append").trigger(processingTime=f"{every_ms} milliseconds")
        self._query: StreamingQuery = writer.start()
        self._last = -1

    @property
    def alive(self) -> bool:
        """It has neither died nor been stopped."""
        return bool(self._query.isActive)

    def done(self) -> Done | None:
        """The last batch that was finished since the last call. Cheap: call it often."""
        progress: Any = self._query._jsq.lastProgress()  # noqa: SLF001 - without parsing the rest of it
        if progress is None or progress.batchId() == self._last or progress.sources()[0].endOffset() is None:
            return None
        source = progress.sources()[0]
        if not progress.durationMs().containsKey("addBatch"):
            return None  # a report of idling, not of a batch
        self._last = progress.batchId()
        offsets = json.loads(source.endOffset())
        end = {int(partition): int(offset) for partition, offset in next(iter(offsets.values())).items()}
        return Done(
            self._last, end, source.numInputRows(), int(progress.durationMs().get("triggerExecution") or 0)
        )

    @property
    def idle(self) -> bool:
        """It works on no batch at this moment."""
        return not self._query._jsq.status().isTriggerActive()  # noqa: SLF001

    def error(self) -> str | None:
        """Why it died, None when it did not."""
        error: StreamingQueryException | None = self._query.exception()
        return None if error is None else str(error)

    def stop(self) -> None:
        """Stop it now; a batch that is not finished is thrown away and repeated by the next run."""
        self._query.stop()
        shutil.rmtree(self._checkpoint, ignore_errors=True)


def offsets_json(topic: str, offsets: PartitionOffsets) -> str:
    """Offsets as the Kafka source wants them."""
    return json.dumps({topic: {str(partition): offset for partition, offset in sorted(offsets.items())}})
