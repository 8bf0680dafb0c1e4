"""Merges the rows of a batch into a table with one row for each key.

The data files that hold a row of one of the keys are found by the statistics of the catalog and then by the keys
themselves; their other rows are written again together with the new ones. A row replaces another one only if its
position, the offset of its event in `raw`, is higher, so that an older event that comes late changes nothing. Between
logs of a stream, whose offsets do not compare, the event that was accepted later stands.
"""

from collections.abc import Mapping
from typing import Final

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.manifest import DataFile
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from hifi.pipe.model import SqlType
from hifi_iceberg.declaration import ACCEPTED, LOG, OFFSET, PARTITION, LakeTable
from hifi_lake.batch.stored_files import StoredFiles
from hifi_lake.batch.table_rows import DELETES, ROW

_NEW: Final = "hifi new"
_FILE: Final = "hifi file"
_ORDERED: Final = {SqlType.INT, SqlType.BIGINT, SqlType.STRING}
"""Types of a key whose range is compared with the statistics of data files."""


def newest_by_key(rows: DataFrame, table: LakeTable, types: Mapping[str, str]) -> DataFrame:
    """The last row of each key, with all columns of the table and `DELETES`: the result of the batch for the key.

    Args:
        rows: of the batch.
        table: the table.
        types: all columns that the table has, and their Spark SQL types.
    """
    row_columns = set(rows.select(f"{ROW}.*").columns)
    columns = [
        f"{ROW}.`{name}`" if name in row_columns else f"cast(null as {kind}) as `{name}`"
        for name, kind in types.items()
    ]
    complete_rows = rows.withColumn(ROW, sql.expr(f"struct({', '.join(columns)})"))
    key_columns = [sql.col(f"{ROW}.`{name}`").alias(name) for name in table.settings.key]
    newest_row = sql.max_by(sql.struct(ROW, DELETES), sql.col(f"{ROW}.`{OFFSET}`")).alias(_NEW)
    return complete_rows.groupBy(*key_columns).agg(newest_row).select(f"`{_NEW}`.*")


def affected_files(newest: DataFrame, table: LakeTable, files: StoredFiles) -> list[DataFile]:
    """The data files of the table with a row of one of the keys."""
    candidate_files = files.matching(_key_range(newest, table))
    if not candidate_files:
        return []
    key_names = list(table.settings.key)
    key_rows = newest.select(*(sql.col(f"{ROW}.`{name}`").alias(name) for name in key_names))
    rows = files.read(candidate_files).select(*key_names, sql.col("_metadata.file_name").alias(_FILE))
    file_rows = rows.join(sql.broadcast(key_rows), key_names, "left_semi").select(_FILE).distinct().collect()
    file_names = {str(row[0]) for row in file_rows}
    return [candidate for candidate in candidate_files if files.name_of(candidate) in file_names]


def merged(newest: DataFrame, stored_rows: DataFrame, table: LakeTable) -> DataFrame:
    """The rows that replace the affected files.

    Args:
        newest: as `newest_by_key` returns it.
        stored_rows: rows of the affected files.
        table: the table.
    """
    key_names = list(table.settings.key)
    changes = newest.select(*(sql.col(f"{ROW}.`{name}`").alias(name) for name in key_names), ROW, DELETES)
    joined_rows = stored_rows.select(*key_names, sql.struct("*").alias("old")).join(
        changes, key_names, "full_outer"
    )
    is_same_log = f"coalesce(old.`{LOG}` = {ROW}.`{LOG}`, false)"
    is_older_offset = f"old.`{PARTITION}` = {ROW}.`{PARTITION}` and old.`{OFFSET}` >= {ROW}.`{OFFSET}`"
    is_older = f"if({is_same_log}, {is_older_offset}, old.`{ACCEPTED}` > {ROW}.`{ACCEPTED}`)"
    keeps_stored = f"{ROW} is null or (old is not null and {is_older})"
    return (
        joined_rows.filter(f"({keeps_stored}) or not {DELETES}")
        .select(sql.expr(f"if({keeps_stored}, old, {ROW})").alias(ROW))
        .select(f"{ROW}.*")
    )


def _key_range(newest: DataFrame, table: LakeTable) -> BooleanExpression:
    """A filter that excludes files which, by their statistics, have none of the keys."""
    key_name = table.settings.key[0]
    if table.columns.get(key_name) not in _ORDERED:
        return AlwaysTrue()
    column = f"{ROW}.`{key_name}`"
    lowest_key, highest_key = newest.agg(sql.min(column), sql.max(column)).collect()[0]
    return And(
        GreaterThanOrEqual(term=key_name, value=lowest_key), LessThanOrEqual(term=key_name, value=highest_key)
    )
