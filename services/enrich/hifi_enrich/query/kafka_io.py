"""Reads topics with Spark's Kafka connector."""

import os
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from hifi.pipe.model import QueryTrigger
from hifi.spark.kafka_connector import PartitionOffsets, offsets_json, source_options
from hifi.spark.spark_session import task_slots
from hifi_enrich.settings import EnrichSettings

_TASKS_PER_CORE: Final = 2
"""Tasks of a micro-batch in this process: one waits for Kafka while the other computes."""
_FETCH_WAIT_MS: Final = 1
"""Longest wait of a fetch in a bounded read, whose records all exist already.

Spark's reader asks for the partition's end offset after each fetch, on the connection on which Kafka's client already
waits with its next fetch, for records that do not exist yet.
"""


def read_stream(
    spark: SparkSession,
    settings: EnrichSettings,
    topic: str,
    start: PartitionOffsets,
    trigger: QueryTrigger,
) -> DataFrame:
    """Read a topic as a stream of records with headers, from the given offset of each of its partitions.

    A task of a micro-batch reads several partitions one after the other, so that many partitions are not as many tasks.
    """
    options = source_options(settings, topic, start) | {"kafka.client.id": settings.instance}
    if trigger == "real-time":
        return spark.readStream.format("kafka").options(**options).load()
    options |= {
        "maxOffsetsPerTrigger": str(settings.enrich_max_offsets_per_trigger),
        "kafka.fetch.max.wait.ms": str(_FETCH_WAIT_MS),
    }
    records = spark.readStream.format("kafka").options(**options).load()
    if task_slots(spark.sparkContext.master or "") is None:
        return records  # a cluster has a core for each partition
    return records.coalesce(max_tasks())


def max_tasks() -> int:
    """Largest number of tasks of a micro-batch that runs in this process."""
    return _TASKS_PER_CORE * (os.cpu_count() or 1)


def read_range(
    spark: SparkSession, settings: EnrichSettings, topic: str, start: PartitionOffsets, end: PartitionOffsets
) -> DataFrame:
    """Read the records of a topic from `start` up to, not including, `end`."""
    options = source_options(settings, topic, start) | {
        "endingOffsets": offsets_json(topic, end),
        "kafka.fetch.max.wait.ms": str(_FETCH_WAIT_MS),
    }
    return spark.read.format("kafka").options(**options).load()


def made_up_record(spark: SparkSession) -> DataFrame:
    """One record of partition 0, in the columns of Spark's Kafka source, that no service takes for an event."""
    # The columns depend on a row, so that tasks evaluate them.
    id_text = F.col("id").cast("string")
    id_bytes = id_text.cast("binary")
    return spark.range(1).select(
        id_bytes.alias("key"),
        id_bytes.alias("value"),
        F.col("id").cast("int").alias("partition"),
        F.array(F.struct(id_text.alias("key"), id_bytes.alias("value"))).alias("headers"),
        F.timestamp_millis(F.col("id")).alias("timestamp"),
    )
