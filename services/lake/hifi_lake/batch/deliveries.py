"""The deliveries of a batch: one row for each event and table, parsed from the records of `enriched` with Spark SQL."""

from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from hifi.pipe.pipes_end import PipesEnd
from hifi.record.headers import ACCEPTED, PIPE, RAW, REPLAY, REVISION_OFFSET, SEQ, SERVICE, TO
from hifi.record.spark_sql import (
    header_text,
    hop_field,
    hop_texts,
    identity_field,
    identity_texts,
    literal,
)
from hifi_iceberg.destination.progress import TableProgress

WORK: Final = "work"
"""Column that identifies copies of a delivery: the event's identity, and the number of its replay."""
_PARSED: Final = {
    "identity": identity_texts(),
    "hop": hop_texts(),
    "pipe": identity_field(PIPE),
    "revision_offset": f"cast({identity_field(REVISION_OFFSET)} as bigint)",
    "accepted_us": f"cast({identity_field(ACCEPTED)} as bigint)",
    "seq": identity_field(SEQ),
    "raw": f"coalesce(cast({hop_field(RAW)} as bigint), -1)",
    "replay": f"nullif({header_text(REPLAY)}, '0')",
    "refused_by": header_text(SERVICE),
    WORK: "if(replay is null, seq, concat(seq, '~', replay))",
    # A replay that re-entered at enrich has its old offset in `raw`: only its identity shows whether it is a copy.
    "ranked": "raw >= 0 and (replay is null or coalesce(refused_by, '') = 'normalize')",
}
UNPUBLISHED: Final = "unpublished"
"""Column of whether the event names a revision of its pipe that was never published."""
_DELIVERY_COLUMNS: Final = (
    *("partition", "offset", "key", "value", "headers"),
    *("pipe", "accepted_us", "seq", "raw", WORK, "ranked", "revision_offset", UNPUBLISHED, "destination"),
)


def parse(records: DataFrame, pipes_end: PipesEnd) -> DataFrame:
    """Parse the headers of records of `enriched` into columns; null where one is malformed.

    Args:
        records: as Kafka has them.
        pipes_end: tells which revisions were never published.
    """
    for name, expression in _PARSED.items():
        records = records.withColumn(name, sql.expr(expression))
    is_unpublished = f"coalesce({pipes_end.excludes_sql('revision_offset')}, false)"
    return records.withColumn(UNPUBLISHED, sql.expr(is_unpublished))


def deliveries(parsed: DataFrame, tables: Iterable[tuple[str, str]]) -> DataFrame:
    """One row for each event and destination among `tables`, pairs of pipe and destination."""
    table_names = ", ".join(literal(f"{pipe}/{destination}") for pipe, destination in tables)
    destination_names = f"array_distinct(split({hop_field(TO)}, ','))"
    table_destinations = (
        f"filter({destination_names}, name -> concat(pipe, '/', name) in ({table_names or 'null'}))"
    )
    return parsed.withColumn("destination", sql.expr(f"explode({table_destinations})")).select(
        *_DELIVERY_COLUMNS
    )


def without_copies(rows: DataFrame, progress: TableProgress) -> DataFrame:
    """The first copies among the deliveries of one table.

    Args:
        rows: of one table.
        progress: that the table had before the batch.
    """
    new_rows = rows.filter(beyond(progress))
    copies_by_work = new_rows.groupBy(WORK).agg(
        sql.min("offset").alias("first"), sql.count("*").alias("copies")
    )
    first_copies = [tuple(row) for row in copies_by_work.filter("copies > 1").select(WORK, "first").collect()]
    if not first_copies:
        return new_rows
    schema = f"`{WORK}` string, first bigint"
    first_offsets = sql.broadcast(rows.sparkSession.createDataFrame(first_copies, schema))
    return new_rows.join(first_offsets, WORK, "left").filter("first is null or offset = first").drop("first")


def beyond(progress: TableProgress) -> str:
    """SQL of whether a delivery is beyond the progress of its table: not handled yet, and no copy of a row."""
    next_offsets = {
        partition: partition_progress.next for partition, partition_progress in progress.partitions.items()
    }
    highest_raws = {
        partition: partition_progress.raw for partition, partition_progress in progress.partitions.items()
    }
    return f"offset >= {_by_partition(next_offsets, 0)} and (not ranked or raw > {_by_partition(highest_raws, -1)})"


def _by_partition(values: Mapping[int, int], default: int) -> str:
    if not values:
        return f"{default}L"
    cases = " ".join(f"when {partition} then {value}L" for partition, value in sorted(values.items()))
    return f"case partition {cases} else {default}L end"
