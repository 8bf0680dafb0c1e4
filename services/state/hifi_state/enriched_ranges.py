"""Reads ranges of `enriched` with Spark, and writes dead letters."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from hifi.spark.kafka_connector import offsets_json, source_options, write_records
from hifi_state.settings import StateSettings

_SMALL: Final = 20_000
"""Records of a range that is read in one task."""


class EnrichedRanges:
    """Reads the ranges of one step."""

    def __init__(self, settings: StateSettings, spark: SparkSession, pipe: str) -> None:
        """Connect nothing yet.

        Args:
            settings: of the service.
            spark: session.
            pipe: of the step.
        """
        self._settings = settings
        self._spark = spark
        # Of its own, Spark makes up a group for each range, and keeps what its consumers have fetched for 5 minutes.
        self._group = f"{settings.topics.spark_group_prefix}-state.{pipe}"
        self.most_records: Final = settings.state_max_offsets_per_batch
        """Most records of a range."""

    def read(self, start: Mapping[int, int], end: Mapping[int, int]) -> DataFrame:
        """The records from the start offsets on, before the end offsets; both have all partitions."""
        topic = self._settings.topics.enriched
        options = source_options(self._settings, topic, start) | {
            "kafka.client.id": self._settings.instance,
            "kafka.group.id": self._group,
            "endingOffsets": offsets_json(topic, end),
        }
        records = self._spark.read.format("kafka").options(**options).load()
        is_small = sum(end[partition] - offset for partition, offset in start.items()) <= _SMALL
        return records.coalesce(1) if is_small else records

    def write_dead_letters(self, letters: DataFrame) -> None:
        """Write records to `dead-letter`, and wait until Kafka has acknowledged them."""
        topic = self._settings.topics.dead_letter
        write_records(letters.withColumn("topic", sql.lit(topic)), self._settings)


def next_range(start: Mapping[int, int], end: Mapping[int, int], most_records: int) -> dict[int, int]:
    """The end of the next range: at most so many records, shared among the partitions by what they have. Pure."""
    sizes = {partition: max(0, end.get(partition, offset) - offset) for partition, offset in start.items()}
    total = sum(sizes.values())
    if total <= most_records:
        return {partition: offset + sizes[partition] for partition, offset in start.items()}
    return {
        partition: offset + min(sizes[partition], max(1, sizes[partition] * most_records // total))
        for partition, offset in start.items()
    }
