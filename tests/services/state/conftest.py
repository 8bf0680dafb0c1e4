"""A Spark session for what folds ranges without Kafka."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from hifi.spark.spark_session import GENERATED, scratch_folder, start_spark, stop_spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session with one core, for the tests of a module."""
    with scratch_folder() as scratch:
        session = start_spark("local[1]", "test-state", scratch, GENERATED)
        yield session
        stop_spark(session)
