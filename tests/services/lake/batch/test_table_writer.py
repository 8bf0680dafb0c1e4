"""Tables whose files Spark's tasks do not reach are refused before they are taken over."""

import pytest

from hifi.runtime.errors import Misconfigured
from hifi_lake.batch.table_writer import require_reachable


@pytest.mark.parametrize("master", ["k8s://https://kubernetes.default.svc", "spark://spark:7077"])
def test_a_table_in_a_bucket_needs_tasks_in_the_process_of_lake(master: str) -> None:
    with pytest.raises(Misconfigured, match=r"s3://lake/shop/orders.*set HIFI_LAKE_MASTER to local\[N\]"):
        require_reachable("s3://lake/shop/orders", master)


@pytest.mark.parametrize(
    ("location", "master"),
    [
        ("s3://lake/shop/orders", "local[2]"),
        ("file:///lake/shop/orders", "k8s://https://kubernetes.default.svc"),
        ("/lake/shop/orders", "spark://spark:7077"),
    ],
)
def test_tables_that_all_tasks_reach_are_written(location: str, master: str) -> None:
    require_reachable(location, master)
