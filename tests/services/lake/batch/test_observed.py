"""What a query has observed is known after its end, or the batch is repeated; real Spark."""

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as sql

from hifi.runtime.errors import Retryable
from hifi.spark.spark_session import local_spark
from hifi_lake.batch.observed import observed


def test_a_query_of_which_spark_does_not_tell_is_repeated_instead_of_waited_for() -> None:
    with local_spark() as spark:
        observation = Observation()
        rows = spark.range(3).observe(observation, sql.count(sql.lit(1)).alias("rows"))
        with pytest.raises(Retryable, match="has not told within"):
            observed(observation, wait_s=0.1)  # nothing has read the rows
        rows.collect()
        assert observed(observation) == {"rows": 3}
