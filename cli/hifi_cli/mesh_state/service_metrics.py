"""Read the counters of services from their /metrics pages."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from hifi_infra.mesh.health_probe import get

ACCEPTED = "hifi_ingest_accepted_events_total"
READ = "hifi_records_read_total"
WRITTEN = "hifi_records_written_total"
OUTCOMES = "hifi_egest_outcomes_total"
DEAD = "hifi_dead_letters_total"
COUNTED = frozenset({ACCEPTED, READ, WRITTEN, OUTCOMES, DEAD})


@dataclass(frozen=True, slots=True)
class ServiceCounters:
    """The counters of one instance, read at the monotonic time `at_s`."""

    at_s: float
    totals: Mapping[str, float] = field(default_factory=dict)
    delivered: float = 0


async def read_counters(port: int) -> ServiceCounters | None:
    """Read the counters of the instance on a port of this machine; None if it does not answer."""
    try:
        status, page = await get(port, "/metrics")
    except OSError:
        return None
    if status != 200:
        return None
    return _read(page.decode())


async def read_all_counters(ports: Iterable[int]) -> dict[int, ServiceCounters | None]:
    """Read the counters of several instances concurrently, by port."""
    ports = list(ports)
    return dict(zip(ports, await asyncio.gather(*map(read_counters, ports)), strict=True))


def per_second(before: ServiceCounters | None, after: ServiceCounters | None, name: str) -> float | None:
    """Return the increase of a counter per second; None if a reading is missing or the service restarted."""
    if before is None or after is None or after.at_s <= before.at_s:
        return None
    increase = after.totals.get(name, 0) - before.totals.get(name, 0)
    return increase / (after.at_s - before.at_s) if increase >= 0 else None


def _read(text: str) -> ServiceCounters:
    totals: dict[str, float] = {}
    delivered_total = 0.0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in COUNTED:
                totals[sample.name] = totals.get(sample.name, 0) + sample.value
                if sample.name == OUTCOMES and sample.labels.get("outcome") == "delivered":
                    delivered_total += sample.value
    return ServiceCounters(time.monotonic(), totals, delivered_total)
