"""One Spark session for all tests of enrich."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.enrich.spark_bench import SparkBench

from hifi.spark.catalyst import Catalyst
from hifi.spark.spark_session import stop_spark
from hifi_enrich.settings import EnrichSettings
from hifi_enrich.spark.session import connector_jars, start_session

FUNCTIONS = Path(__file__).parents[2] / "support" / "programs" / "functions"
SLOTS = 9
"""At most two queries of two partitions run at the same time, and tasks of a stopped query may still end."""


@pytest.fixture(scope="session", autouse=True)
def function_folder() -> Iterator[None]:
    """Pipes of these tests may name the functions of `udfs.py`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIFI_PIPES_FUNCTION_FOLDERS", str(FUNCTIONS))
        patch.setenv("PLANTED_SECRET", "no UDF may see it")
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark without its log: the queries that fail in these tests fail on purpose."""
    settings = EnrichSettings(enrich_conf={"spark.sql.execution.arrow.maxRecordsPerBatch": "100"})
    jars = connector_jars(settings.enrich_spark_jars)
    session = start_session(f"local[{SLOTS}]", settings, jars, tmp_path_factory.mktemp("spark"))
    session.sparkContext.setLogLevel("OFF")
    yield session
    stop_spark(session)


@pytest.fixture(scope="session")
def catalyst(spark: SparkSession) -> Catalyst:
    return Catalyst(spark)


@pytest.fixture
def bench(catalyst: Catalyst) -> SparkBench:
    """Jobs that are evaluated as in micro-batches."""
    bench = SparkBench(catalyst)
    bench.evaluate_as("micro-batch")
    return bench
