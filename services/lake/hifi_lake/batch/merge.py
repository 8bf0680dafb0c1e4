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


def newest_by_key(rows: DataFrame, declared: LakeTable, types: Mapping[str, str]) -> DataFrame:
    """The last row of each key, with all columns of the table and `DELETES`: what the batch makes of the key.

    Args:
        rows: of the batch.
        declared: the table.
        types: all columns that the table has, and their Spark SQL types.
    """
    row_columns = set(rows.select(f"{ROW}.*").columns)
    columns = [
        f"{ROW}.`{name}`" if name in row_columns else f"cast(null as {kind}) as `{name}`"
        for name, kind in types.items()
    ]
    all_columns = rows.withColumn(ROW, sql.expr(f"struct({', '.join(columns)})"))
    keys = [sql.col(f"{ROW}.`{name}`").alias(name) for name in declared.settings.key]
    last = sql.max_by(sql.struct(ROW, DELETES), sql.col(f"{ROW}.`{OFFSET}`")).alias(_NEW)
    return all_columns.groupBy(*keys).agg(last).select(f"`{_NEW}`.*")


def affected_files(newest: DataFrame, declared: LakeTable, files: StoredFiles) -> list[DataFile]:
    """The data files of the table with a row of one of the keys."""
    candidates = files.matching(_key_range(newest, declared))
    if not candidates:
        return []
    key = list(declared.settings.key)
    keys = newest.select(*(sql.col(f"{ROW}.`{name}`").alias(name) for name in key))
    rows = files.read(candidates).select(*key, sql.col("_metadata.file_name").alias(_FILE))
    file_rows = rows.join(sql.broadcast(keys), key, "left_semi").select(_FILE).distinct().collect()
    names = {str(row[0]) for row in file_rows}
    return [candidate for candidate in candidates if files.name_of(candidate) in names]


def merged(newest: DataFrame, old: DataFrame, declared: LakeTable) -> DataFrame:
    """The rows that replace the affected files.

    Args:
        newest: as `newest_by_key` returns it.
        old: rows of the affected files.
        declared: the table.
    """
    key = list(declared.settings.key)
    changes = newest.select(*(sql.col(f"{ROW}.`{name}`").alias(name) for name in key), ROW, DELETES)
    joined_rows = old.select(*key, sql.struct("*").alias("old")).join(changes, key, "full_outer")
    same_log = f"coalesce(old.`{LOG}` = {ROW}.`{LOG}`, false)"
    by_offset = f"old.`{PARTITION}` = {ROW}.`{PARTITION}` and old.`{OFFSET}` >= {ROW}.`{OFFSET}`"
    is_older = f"if({same_log}, {by_offset}, old.`{ACCEPTED}` > {ROW}.`{ACCEPTED}`)"
    keeps = f"{ROW} is null or (old is not null and {is_older})"
    return (
        joined_rows.filter(f"({keeps}) or not {DELETES}")
        .select(sql.expr(f"if({keeps}, old, {ROW})").alias(ROW))
        .select(f"{ROW}.*")
    )


def _key_range(newest: DataFrame, declared: LakeTable) -> BooleanExpression:
    """A filter that leaves out files whose statistics show that they have none of the keys."""
    name = declared.settings.key[0]
    if declared.columns.get(name) not in _ORDERED:
        return AlwaysTrue()
    column = f"{ROW}.`{name}`"
    least, most = newest.agg(sql.min(column), sql.max(column)).collect()[0]
    return And(GreaterThanOrEqual(term=name, value=least), LessThanOrEqual(term=name, value=most))
