"""A capacity is shared fairly: small demands are met, large ones share the rest."""

import math

import pytest

from hifi_ingest.admission.demand import Demand, fair_share


@pytest.mark.parametrize(
    ("capacity", "demands", "share"),
    [
        (100, [], math.inf),
        (100, [40, 60], math.inf),
        (100, [1000], 100),
        (100, [1000, 10], 90),
        (100, [10, 1000, 1000], 45),
        (100, [30, 1000, 40], 35),
    ],
)
def test_a_capacity_is_shared_max_min(capacity: float, demands: list[float], share: float) -> None:
    assert fair_share(capacity, demands) == share
    assert sum(min(demand, share) for demand in demands) <= capacity


def test_a_refused_request_counts_with_the_size_of_the_others() -> None:
    demand = Demand()
    demand.add(10)
    for _ in range(9):
        demand.add_unread()
    demand.end_period(2.0)
    assert demand.per_s == 50
    demand.end_period(1.0)
    assert demand.per_s == pytest.approx(10)
