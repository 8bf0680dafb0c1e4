"""How full lanes are, from the metrics of real registries."""

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from hifi_infra.mesh.lane_occupancy import lane_occupancy, occupancy_of


def page(**lanes: tuple[float, float]) -> str:
    registry = CollectorRegistry()
    labels = ["pipe", "destination"]
    running = Gauge("hifi_egest_lane_requests", "In flight.", labels, registry=registry)
    concurrency_gauge = Gauge("hifi_egest_lane_concurrency", "Allowed.", labels, registry=registry)
    for name, (now, limit) in lanes.items():
        running.labels("flights", name).set(now)
        concurrency_gauge.labels("flights", name).set(limit)
    return generate_latest(registry).decode()


def test_the_lanes_of_all_instances_count_together() -> None:
    assert occupancy_of([page(crm=(8, 8), lake=(0, 0)), page(crm=(2, 12))]) == 0.5


def test_without_deliveries_nothing_is_full() -> None:
    assert occupancy_of([page(crm=(0, 0))]) == 0
    assert occupancy_of([]) == 0


def test_another_page_is_refused() -> None:
    with pytest.raises(ValueError, match="nvalid"):
        occupancy_of(['{"state": "running"}'])


async def test_an_instance_that_does_not_answer_makes_it_unknown() -> None:
    assert await lane_occupancy([("127.0.0.1", 1)]) == {}
