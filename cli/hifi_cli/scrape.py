"""What services count, read from their /metrics."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from hifi_infra.probe import get

ACCEPTED = "hifi_ingest_accepted_events_total"
READ = "hifi_records_read_total"
WRITTEN = "hifi_records_written_total"
OUTCOMES = "hifi_egest_outcomes_total"
DEAD = "hifi_dead_letters_total"
COUNTED = frozenset({ACCEPTED, READ, WRITTEN, OUTCOMES, DEAD})


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of one service at one moment; `at_s` is monotonic."""

    at_s: float
    totals: Mapping[str, float] = field(default_factory=dict)
    delivered: float = 0


async def counts(port: int) -> Counts | None:
    """The counters of the service with its health pages on this port; None when it does not answer."""
    try:
        status, page = await get(port, "/metrics")
    except OSError:
        return None
    if status != 200:
        return None
    return _read(page.decode())


async def counts_of(ports: Iterable[int]) -> dict[int, Counts | None]:
    """As `counts`, of several at once."""
    ports = list(ports)
    return dict(zip(ports, await asyncio.gather(*map(counts, ports)), strict=True))


def per_second(before: Counts | None, after: Counts | None, name: str) -> float | None:
    """How fast a counter grew between two readings; None when that is not known (also after a restart)."""
    if before is None or after is None or after.at_s <= before.at_s:
        return None
    grown = after.totals.get(name, 0) - before.totals.get(name, 0)
    return grown / (after.at_s - before.at_s) if grown >= 0 else None


def _read(text: str) -> Counts:
    totals: dict[str, float] = {}
    delivered = 0.0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in COUNTED:
                totals[sample.name] = totals.get(sample.name, 0) + sample.value
                if sample.name == OUTCOMES and sample.labels.get("outcome") == "delivered":
                    delivered += sample.value
    return Counts(time.monotonic(), totals, delivered)
