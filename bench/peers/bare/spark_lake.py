"""Appends events to an Iceberg table with Spark and pyiceberg alone, until it is ended.

`python spark_lake.py KAFKA SOURCE WAREHOUSE BATCH`: Spark Structured Streaming reads JSON from a topic, Spark's Parquet
writer writes the files of each batch of BATCH records, and `add_files` commits them. Nothing else: no copies are
recognized, no receipts are written, no offsets are committed to Kafka.
"""

import os
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import DoubleType, IntegerType, NestedField, StringType, TimestamptzType
from pyspark.sql import DataFrame, SparkSession

from hifi_infra.java.jars import spark_jars

SCHEMA = Schema(
    NestedField(1, "id", IntegerType()),
    NestedField(2, "total", DoubleType()),
    NestedField(3, "note", StringType()),
    NestedField(4, "at", TimestamptzType()),
)


def main(kafka: str, source: str, warehouse: str, batch: str) -> None:
    """Start the query and wait for its end."""
    folder = Path(warehouse)
    folder.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("hifi", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace_if_not_exists("bench")
    days = PartitionSpec(PartitionField(4, 1000, DayTransform(), "day"))
    table = catalog.create_table_if_not_exists("bench.orders", schema=SCHEMA, partition_spec=days)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.extraClassPath", os.pathsep.join(map(str, spark_jars())))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.sql.parquet.compression.codec", "zstd")
        .getOrCreate()
    )

    def commit(records: DataFrame, _number: int) -> None:
        rows = records.selectExpr(
            "from_json(cast(value as string), 'id int, total double, note string') as data", "timestamp as at"
        ).selectExpr("data.*", "at", "to_date(at) as day")
        files = Path(table.location().removeprefix("file://")) / "data" / uuid4().hex
        rows.write.partitionBy("day").parquet(str(files))
        table.add_files([f"file://{path}" for path in files.rglob("*.parquet")], check_duplicate_files=False)

    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", batch)
        .load()
    )
    with tempfile.TemporaryDirectory(prefix="bare-lake-") as checkpoint:
        query = records.writeStream.foreachBatch(commit).option("checkpointLocation", checkpoint)
        query.trigger(processingTime="100 milliseconds").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
