"""The Spark session of lake."""

import os
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from hifi.kafka.security import security_of
from hifi.spark.jars import installed_jars
from hifi.spark.spark_session import GENERATED, start_spark, task_slots
from hifi_lake.settings import LakeSettings

_CONF: Final = {
    **GENERATED,
    "spark.sql.subexpressionElimination.enabled": "true",  # the data of an event is parsed once, not for each column
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # a batch is kept for seconds
    # Iceberg's statistics and types: Spark's default, INT96, has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    # Files become part of a table by its commit, so a folder needs no marker of its own.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Plans and logs show the options of sources and sinks, which hold Kafka's credentials.
    "spark.sql.redaction.options.regex": "(?i)url|jaas|keystore|password|secret",
}


_CLUSTER_PARTITIONS: Final = 8


def start_session(settings: LakeSettings, scratch: Path) -> SparkSession:
    """Start Spark in this process. Blocks for some seconds.

    Args:
        settings: of the service.
        scratch: folder for temporary files.
    """
    jars = installed_jars("spark")
    conf = {
        **_CONF,
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.memory": settings.lake_driver_memory,
        "spark.sql.shuffle.partitions": str(task_slots(settings.lake_master) or _CLUSTER_PARTITIONS),
    }
    if task_slots(settings.lake_master) is None:
        conf["spark.jars"] = ",".join(map(str, jars))
    token_url = security_of(settings.kafka).token_url
    # Kafka's client fetches access tokens only from the endpoints that this property names.
    java_options = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token_url}" if token_url else ""
    java_options += (
        " -XX:TieredStopAtLevel=4"  # bulk is worth the second compiler; overrides the option for enrich
    )
    return start_spark(
        settings.lake_master,
        f"hifi-lake-{settings.stream}",
        scratch,
        {**conf, **settings.lake_conf},
        java_options,
    )
