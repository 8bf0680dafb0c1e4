"""Reads ranges of `enriched` with Spark, and writes dead letters."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from hifi.kafka.security import java_client_options
from hifi.spark.kafka_connector import offsets_json, source_options, write_records
from hifi_state.fold.judged_events import FoldRules
from hifi_state.fold.range_bound import RangeBound
from hifi_state.fold.range_folder import SMALL_RANGE, FoldedRange, RangeFolder
from hifi_state.settings import StateSettings


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
        self._topic = settings.topics.enriched
        self._client = {
            **java_client_options(settings.kafka),
            "client.id": settings.instance,
            # Else Spark makes up a group for each range, and keeps what its consumers have fetched for 5 minutes.
            "group.id": f"{settings.topics.spark_group_prefix}-state.{pipe}",
            "max.poll.records": "2000",
            # The next records are asked for in advance, and what reads a range waits for the answer.
            "fetch.max.wait.ms": "20",
        }
        self.bound: Final = RangeBound(settings.state_max_offsets_per_batch)
        """Of the records of a range."""

    def fold(
        self,
        folder: RangeFolder,
        start: Mapping[int, int],
        end: Mapping[int, int],
        rules: FoldRules,
        *,
        keeps_events: bool = False,
    ) -> FoldedRange:
        """Fold the records from the start offsets on, before the end offsets; both have all partitions.

        Args:
            folder: of the declaration.
            start: partition to offset.
            end: partition to offset.
            rules: that decide.
            keeps_events: whether the range is asked for its dead letters, see `RangeFolder.fold`.

        Raises:
            RangeTooLarge: it has to be smaller.
        """
        count = sum(end[partition] - offset for partition, offset in start.items())
        self.bound.begin(count)
        is_small = count <= SMALL_RANGE
        if is_small and not keeps_events and not rules.judged:
            return folder.fold_small(self._topic, self._client, start, end, rules)
        options = source_options(self._settings, self._topic, start) | {
            **{f"kafka.{name}": value for name, value in self._client.items()},
            "endingOffsets": offsets_json(self._topic, end),
        }
        records = self._spark.read.format("kafka").options(**options).load()
        if is_small:
            records = records.coalesce(1)
        return folder.fold(records, rules, keeps_events=keeps_events, is_small=is_small)

    def write_dead_letters(self, letters: DataFrame) -> None:
        """Write records to `dead-letter`, and wait until Kafka has acknowledged them."""
        topic = self._settings.topics.dead_letter
        write_records(letters.withColumn("topic", sql.lit(topic)), self._settings)


def next_range(start: Mapping[int, int], end: Mapping[int, int], most_records: int) -> dict[int, int]:
    """The end of the next range: at most `most_records`, shared among the partitions by what they have. Pure.

    Those that have most come first, where there are more partitions than records.
    """
    sizes = {partition: max(0, end.get(partition, offset) - offset) for partition, offset in start.items()}
    total = sum(sizes.values())
    if total <= most_records:
        return {partition: offset + sizes[partition] for partition, offset in start.items()}
    result, left_count = dict(start), most_records
    for partition, size in sorted(sizes.items(), key=lambda item: -item[1]):
        count = min(size, max(1, size * most_records // total), left_count)
        result[partition] += count
        left_count -= count
    return result
