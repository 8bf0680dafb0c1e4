"""Spark sessions for what folds ranges without Kafka, and with it."""

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from hifi.spark.bulk_session import start_bulk_session
from hifi.spark.spark_session import GENERATED, scratch_folder, start_spark, stop_spark
from hifi_state.settings import StateSettings


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session with one core, for the tests of a module."""
    with scratch_folder() as scratch:
        session = start_spark("local[1]", "test-state", scratch, GENERATED)
        yield session
        stop_spark(session)


@pytest.fixture
def settings(kafka: str) -> StateSettings:
    """Those of a stream of its own."""
    return StateSettings(kafka=kafka, stream=f"s{uuid.uuid4().hex[:8]}")


@pytest.fixture(scope="module")
def bulk_spark(kafka: str) -> Iterator[SparkSession]:
    """A session as the service has it, with one core, for the tests of a module."""
    with scratch_folder() as scratch:
        session = start_bulk_session(StateSettings(kafka=kafka), "state", scratch, "local[1]", "512m", {})
        yield session
        stop_spark(session)
