"""Find the service that limits a mesh, and the instances needed to tolerate the loss of one. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hifi_cli.rate.step import RateStep

PLANNED_SHARE: Final = 0.8
"""Share of a core to plan with: above it, queueing time grows faster than the load."""
FULL: Final = 0.85
"""CPU use of all cores above which the machine is the limit."""
BEHIND_S: Final = 1.0
"""Backlog, in seconds of load, above which a service counts as the bottleneck."""
MANY_CORES: Final = frozenset({"enrich", "kafka"})
"""Services that use all cores. Every other service is one event loop, so an instance uses one core."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The service that limits the mesh, and the evidence."""

    service: str
    why: str


@dataclass(frozen=True, slots=True)
class CapacityNeed:
    """Instances and cores that a service needs for a load.

    Attributes:
        instances: number of instances of which one can fail.
        cores: cores used at that load.
        note: remark about the number, or empty.
    """

    instances: int
    cores: float
    note: str = ""


def bottleneck(step: RateStep, cores: int, instances: Mapping[str, int]) -> Bottleneck:
    """Find the service that limits the mesh at a rate that failed.

    Args:
        step: measurements at that rate.
        cores: cores of the machine.
        instances: number of instances of each service.
    """
    usage = step.used
    shares = {
        name: cpu / usage.seconds / (cores if name in MANY_CORES else max(1, instances.get(name, 1)))
        for name, cpu in usage.sending_cpu_seconds.items()
    }
    nearest_service = max(shares, key=lambda name: shares[name])
    if shares[nearest_service] >= FULL and nearest_service not in MANY_CORES:
        return Bottleneck(
            nearest_service, f"its event loop is busy {shares[nearest_service]:.0%} of the time"
        )
    if usage.machine_share >= FULL:
        busiest_service = max(usage.cpu_seconds, key=lambda name: usage.cpu_seconds[name])
        fraction = usage.cpu_seconds[busiest_service] / max(sum(usage.cpu_seconds.values()), 1e-9)
        return Bottleneck(
            busiest_service,
            f"all {cores} cores are {usage.machine_share:.0%} busy, and it uses {fraction:.0%} of the CPU time of the "
            "mesh",
        )
    backlogs_s = {name: count / step.rate for name, count in usage.waiting.items() if name != "retrier"}
    slowest_service = max(backlogs_s, key=lambda name: backlogs_s[name], default="")
    if slowest_service and backlogs_s[slowest_service] > BEHIND_S:
        return Bottleneck(
            slowest_service, f"its backlog was {backlogs_s[slowest_service]:.1f} s when the load ended"
        )
    return Bottleneck(
        nearest_service, f"closest to its limit: {shares[nearest_service]:.0%} of the CPU that it can use"
    )


def needs(per_million: Mapping[str, float], load: float, partitions: int) -> dict[str, CapacityNeed]:
    """Compute what each service needs to carry a load after the loss of one instance.

    Args:
        per_million: CPU-seconds of each service per million events.
        load: events a second.
        partitions: partitions of the stream, the maximum number of instances that share the work.
    """
    capacity_needs = {}
    for name, cost in per_million.items():
        cores = cost / 1e6 * load
        if name == "enrich":
            note = f"1 active on {max(1, math.ceil(cores / PLANNED_SHARE))} core(s), 1 standby"
            capacity_needs[name] = CapacityNeed(2, cores, note)
        elif name == "kafka":
            capacity_needs[name] = CapacityNeed(3, cores, "3 copies of each event; the cores are for 1 copy")
        else:
            working_instances = max(1, math.ceil(cores / PLANNED_SHARE))
            exceeds_partitions = name != "ingest" and working_instances > partitions
            note = f"more than {partitions} partitions can use" if exceeds_partitions else ""
            capacity_needs[name] = CapacityNeed(working_instances + 1, cores, note)
    return capacity_needs
