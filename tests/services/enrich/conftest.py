"""One Spark session for all tests of enrich."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parent))

from enriching import Bench

from hifi_enrich import session
from hifi_enrich.catalyst import Catalyst
from hifi_enrich.settings import EnrichSettings

SLOTS = 9
"""Two queries of two partitions run at the same time at most; each task of a stopped one may linger a moment."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark, quiet: what dies in these tests dies on purpose."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    settings = EnrichSettings(enrich_conf={"spark.sql.execution.arrow.maxRecordsPerBatch": "100"})
    jars = session.jars(settings.spark_jars)
    running = session.start(f"local[{SLOTS}]", settings, jars, tmp_path_factory.mktemp("spark"))
    running.sparkContext.setLogLevel("OFF")
    yield running
    session.stop(running)


@pytest.fixture(scope="session")
def catalyst(spark: SparkSession) -> Catalyst:
    return Catalyst(spark)


@pytest.fixture
def bench(catalyst: Catalyst) -> Bench:
    return Bench(catalyst)
