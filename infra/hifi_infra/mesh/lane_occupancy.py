"""Occupancy of the lanes of egest: requests in flight over those that may be, from the metrics of its instances."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from hifi_infra.mesh.health_probe import get

SERVICE: Final = "egest"
"""The only service with lanes."""
_REQUESTS: Final = "hifi_egest_lane_requests"
_CONCURRENCY: Final = "hifi_egest_lane_concurrency"


async def lane_occupancy(addresses: Iterable[tuple[str, int]]) -> Mapping[str, float]:
    """`{"egest": share}` over all lanes that hold deliveries; empty when an instance does not tell.

    Args:
        addresses: host and port of the health pages of egest's instances.
    """
    try:
        pages = await asyncio.gather(*(get(port, "/metrics", host=host) for host, port in addresses))
        return {SERVICE: occupancy_of(body.decode() for _, body in pages)}
    except (OSError, ValueError):  # no answer, or one that is no page of metrics
        return {}


def occupancy_of(pages: Iterable[str]) -> float:
    """Requests in flight over those that may be, 0 to 1; 0 without lanes that hold deliveries.

    Args:
        pages: metrics of the instances in Prometheus' text format.

    Raises:
        ValueError: a page has another format.
    """
    running_requests = allowed_requests = 0.0
    for page in pages:
        for family in text_string_to_metric_families(page):
            if family.name == _REQUESTS:
                running_requests += sum(sample.value for sample in family.samples)
            elif family.name == _CONCURRENCY:
                allowed_requests += sum(sample.value for sample in family.samples)
    return min(1.0, running_requests / allowed_requests) if allowed_requests else 0.0
