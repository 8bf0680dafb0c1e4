"""The Spark session of lake."""

from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from hifi.spark.bulk_session import start_bulk_session
from hifi_lake.settings import LakeSettings

_CONF: Final = {
    # Iceberg's statistics and types: Spark's default, INT96, has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    # Files become part of a table by its commit, so a folder needs no marker of its own.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


def start_session(settings: LakeSettings, scratch: Path) -> SparkSession:
    """Start Spark in this process. Blocks for some seconds.

    Args:
        settings: of the service.
        scratch: folder for temporary files.
    """
    return start_bulk_session(
        settings,
        "lake",
        scratch,
        settings.lake_master,
        settings.lake_driver_memory,
        {**_CONF, **settings.lake_conf},
    )
