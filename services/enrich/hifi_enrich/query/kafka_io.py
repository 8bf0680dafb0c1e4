"""Reads topics and writes records with Spark's Kafka connector."""

import json
import os
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from hifi.kafka.security import java_client_options
from hifi.pipe.model import QueryTrigger
from hifi.sql.spark_session import task_slots
from hifi.topics import Topics
from hifi_enrich.settings import EnrichSettings

PartitionOffsets = Mapping[int, int]
"""Partition to the offset of the next record."""
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


def write_records(records: DataFrame, settings: EnrichSettings) -> None:
    """Write a bounded DataFrame of records (key, value, headers, topic, partition) to Kafka."""
    records.write.format("kafka").options(**sink_options(settings)).save()


def source_options(settings: EnrichSettings, topic: str, start: PartitionOffsets) -> dict[str, str]:
    """Options of Spark's Kafka source."""
    return {
        **_connection_options(settings),
        # Spark makes up the rest of the group id; the prefix is what an ACL can name.
        "groupIdPrefix": Topics(settings.stream).spark_group_prefix,
        "assign": json.dumps({topic: sorted(start)}),
        "startingOffsets": offsets_json(topic, start),
        "includeHeaders": "true",
        # Records deleted by retention fail the query; the supervisor then logs and counts which ones are lost.
        "failOnDataLoss": "true",
    }


_NEVER_MS: Final = str(2**31 - 1)
"""An expired batch leaves a gap: later batches of its partition are sent, and egest takes it for a copy."""


def sink_options(settings: EnrichSettings) -> dict[str, str]:
    """Options of Spark's Kafka sink."""
    return {
        **_connection_options(settings),
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        "kafka.linger.ms": "5",
        "kafka.batch.size": "131072",
        "kafka.compression.type": "lz4",
        "kafka.max.request.size": str(8 * 1024 * 1024),
        "kafka.delivery.timeout.ms": _NEVER_MS,
        "kafka.request.timeout.ms": "15000",
        "kafka.max.block.ms": "30000",
    }


def _connection_options(settings: EnrichSettings) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in java_client_options(settings.kafka).items()}


def offsets_json(topic: str, offsets: PartitionOffsets) -> str:
    """Offsets in the format of the Kafka source's options."""
    return json.dumps({topic: {str(partition): offset for partition, offset in sorted(offsets.items())}})
