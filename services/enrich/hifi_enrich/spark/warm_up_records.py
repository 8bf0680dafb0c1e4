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
    headers = {
        "ce_id": b"1",
        event.CONTENT_TYPE: b"application/json",
        event.PIPE_VERSION: b"0",
        event.SEQ: event.seq_text(0, 0),
        event.ACCEPTED: b"0",
        event.MINUTE: b"0",
    }
    pipe = F.array(*[F.lit(name) for name in pipes[:50]])[(F.col("id") % min(len(pipes), 50)).cast("int")]
    pairs = [
        *((F.lit(name), F.lit(value)) for name, value in headers.items()),
        (F.lit(event.PIPE), pipe.cast("binary")),
    ]
    entries = [F.struct(name.alias("key"), value.alias("value")) for name, value in pairs]
    return spark.range(0, RECORDS, 1, 2).select(
        F.lit(b"key").alias("key"),
        F.lit(_VALUE).alias("value"),
        (F.col("id") % partitions).cast("int").alias("partition"),
        F.array(*entries).alias("headers"),
    )
