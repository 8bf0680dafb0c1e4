"""A Spark session as the service has it, with the first compiler only: most code runs a few times."""

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from hifi.spark.bulk_session import start_bulk_session
from hifi.spark.spark_session import JVM_OPTIONS, scratch_folder, stop_spark
from hifi_state.settings import StateSettings


@pytest.fixture(scope="session")
def spark(kafka: str) -> Iterator[SparkSession]:
    """One core, for the tests of all modules: a session of its own would be cold for each."""
    conf = {"spark.driver.extraJavaOptions": JVM_OPTIONS}
    with scratch_folder() as scratch:
        session = start_bulk_session(StateSettings(kafka=kafka), "state", scratch, "local[1]", "1g", conf)
        yield session
        stop_spark(session)


@pytest.fixture
def settings(kafka: str) -> StateSettings:
    """Those of a stream of its own."""
    return StateSettings(kafka=kafka, stream=f"s{uuid.uuid4().hex[:8]}")
