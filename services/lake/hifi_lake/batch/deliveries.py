"""The deliveries of a batch: one row for each event and table, parsed from the records of `enriched` with Spark SQL."""

from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

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
"""Column with what identifies copies of a delivery: the event's identity, and the number of its replay."""
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
    # A replay that re-entered at enrich has its old offset in `raw`: only its identity tells whether it is a copy.
    "ranked": "raw >= 0 and (replay is null or coalesce(refused_by, '') = 'normalize')",
}
_KEPT: Final = (
    *("partition", "offset", "key", "value", "headers"),
    *("pipe", "accepted_us", "seq", "raw", WORK, "ranked", "destination"),
)


def parse(records: DataFrame) -> DataFrame:
    """The columns that records of `enriched` have for a person who reads them; null where one is malformed."""
    for name, expression in _PARSED.items():
        records = records.withColumn(name, sql.expr(expression))
    return records


def deliveries(parsed: DataFrame, tables: Iterable[tuple[str, str]]) -> DataFrame:
    """One row for each event and destination among `tables`, pairs of pipe and destination."""
    table_names = ", ".join(literal(f"{pipe}/{destination}") for pipe, destination in tables)
    destinations = f"array_distinct(split({hop_field(TO)}, ','))"
    destinations_sql = f"filter({destinations}, name -> concat(pipe, '/', name) in ({table_names or 'null'}))"
    return parsed.withColumn("destination", sql.expr(f"explode({destinations_sql})")).select(*_KEPT)


def without_copies(rows: DataFrame, progress: TableProgress) -> DataFrame:
    """The first copies among the deliveries of one table.

    Args:
        rows: of one table.
        progress: that the table had before the batch.
    """
    new = rows.filter(beyond(progress))
    repeated = new.groupBy(WORK).agg(sql.min("offset").alias("first"), sql.count("*").alias("copies"))
    firsts = [tuple(row) for row in repeated.filter("copies > 1").select(WORK, "first").collect()]
    if not firsts:
        return new
    names = f"`{WORK}` string, first bigint"
    first_offsets = sql.broadcast(rows.sparkSession.createDataFrame(firsts, names))
    return new.join(first_offsets, WORK, "left").filter("first is null or offset = first").drop("first")


def beyond(progress: TableProgress) -> str:
    """SQL of whether a delivery is beyond the progress of its table: not decided yet, and no copy of a row."""
    offsets = {
        partition: partition_progress.next for partition, partition_progress in progress.partitions.items()
    }
    raws = {
        partition: partition_progress.raw for partition, partition_progress in progress.partitions.items()
    }
    return f"offset >= {_by_partition(offsets, 0)} and (not ranked or raw > {_by_partition(raws, -1)})"


def _by_partition(values: Mapping[int, int], default: int) -> str:
    if not values:
        return f"{default}L"
    cases = " ".join(f"when {partition} then {value}L" for partition, value in sorted(values.items()))
    return f"case partition {cases} else {default}L end"
