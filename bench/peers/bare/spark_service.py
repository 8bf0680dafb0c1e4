"""Passes records on with Spark alone: `python spark_service.py KAFKA SOURCE TARGET TRIGGER`, until it is ended.

Spark's own settings, but for the slots that real time needs and the pages that nobody looks at. TRIGGER is
`micro-batch` (every 300 ms, as enrich does) or `real-time` (batches of 30 s).
"""

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from hifi_infra.java.jars import spark_jars

PARTITIONS = 4


def main(kafka: str, source: str, target: str, trigger: str) -> None:
    """Start the query and wait for its end."""
    spark = (
        SparkSession.builder.master(f"local[{PARTITIONS + 1}]")
        .config("spark.driver.extraClassPath", os.pathsep.join(map(str, spark_jars())))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
        .selectExpr("key", "value", "headers", "partition")
    )
    with tempfile.TemporaryDirectory(prefix="bare-spark-", dir=Path.cwd()) as folder:
        writer = (
            records.writeStream.format("kafka")
            .option("kafka.bootstrap.servers", kafka)
            .option("kafka.acks", "all")
            .option("topic", target)
            .option("checkpointLocation", folder)
        )
        if trigger == "real-time":
            writer = writer.outputMode("update").trigger(  # type: ignore[call-overload] # missing in its overloads
                realTime="30 seconds"
            )
        else:
            writer = writer.trigger(processingTime="300 milliseconds")
        writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
