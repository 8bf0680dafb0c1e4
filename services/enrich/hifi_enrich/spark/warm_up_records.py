"""Synthetic records that look like events, for warming Spark up before the first real one."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from hifi import event

RECORDS: Final = 200
_VALUE: Final = b'{"text":"warm up","number":1,"nested":{"list":[1,2,3]},"more":"' + b"x" * 200 + b'"}'


def warm_up_records(spark: SparkSession, pipes: Sequence[str], partitions: int) -> DataFrame:
    """`RECORDS` records with the columns of Spark's Kafka source, spread over the pipes and the partitions.

    Args:
        spark: the session.
        pipes: names; the first 50 are used.
        partitions: of the stream.
    """
    names = F.array(*[F.lit(name) for name in pipes[:50]])
    pipe = names[(F.col("id") % min(len(pipes), 50)).cast("int")]
    identity = F.concat(F.lit(f"{event.FORMAT};"), pipe, F.lit(";0;0;0;0;" + event.seq_text(0, 0).decode()))
    headers = [
        (event.IDENTITY, identity.cast("binary")),
        (event.HOP, F.lit(b"0;0")),
        ("ce_id", F.lit(b"1")),
        (event.CONTENT_TYPE, F.lit(b"application/json")),
    ]
    entries = [F.struct(F.lit(name).alias("key"), value.alias("value")) for name, value in headers]
    return spark.range(0, RECORDS, 1, 2).select(
        F.lit(b"key").alias("key"),
        F.lit(_VALUE).alias("value"),
        (F.col("id") % partitions).cast("int").alias("partition"),
        F.array(*entries).alias("headers"),
    )
