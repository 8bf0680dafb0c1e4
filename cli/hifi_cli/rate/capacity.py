"""Which service limits the mesh, and how many instances carry a load with one of them gone. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hifi_cli.rate.step import RateStep

USABLE: Final = 0.8
"""Share of a core that is planned with: above it the wait in a queue grows faster than the load."""
FULL: Final = 0.85
"""All cores together busier than this: the machine is full."""
BEHIND_S: Final = 1.0
MANY_CORES: Final = frozenset({"enrich", "kafka"})
"""They use as many cores as there are; every other service is one event loop, so one core an instance."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The service that limits, and why it is thought so."""

    service: str
    why: str


@dataclass(frozen=True, slots=True)
class CapacityNeed:
    """What a service needs for a load.

    Attributes:
        instances: T, so many that one fewer carries the load.
        cores: that its working instances use at that load.
        note: what to know beside the number.
    """

    instances: int
    cores: float
    note: str = ""


def bottleneck(step: RateStep, cores: int, instances: Mapping[str, int]) -> Bottleneck:
    """The service that limits at the last rate that was tried.

    Args:
        step: what was measured there.
        cores: of the machine.
        instances: of each service.
    """
    used = step.used
    shares = {
        name: cpu / used.seconds / (cores if name in MANY_CORES else max(1, instances.get(name, 1)))
        for name, cpu in used.sending_cpu_seconds.items()
    }
    nearest = max(shares, key=lambda name: shares[name])
    if shares[nearest] >= FULL and nearest not in MANY_CORES:
        return Bottleneck(nearest, f"its event loop is busy {shares[nearest]:.0%} of the time")
    if used.machine_share >= FULL:
        most = max(used.cpu_seconds, key=lambda name: used.cpu_seconds[name])
        part = used.cpu_seconds[most] / max(sum(used.cpu_seconds.values()), 1e-9)
        return Bottleneck(
            most,
            f"all {cores} cores are busy {used.machine_share:.0%} of the time, {part:.0%} of the mesh's share with it",
        )
    behind = {name: count / step.rate for name, count in used.waiting.items() if name != "retrier"}
    furthest = max(behind, key=lambda name: behind[name], default="")
    if furthest and behind[furthest] > BEHIND_S:
        return Bottleneck(furthest, f"it was {behind[furthest]:.1f} s behind when the load ended")
    return Bottleneck(nearest, f"nearest to its limit: {shares[nearest]:.0%} of the CPU that it can use")


def needs(per_million: Mapping[str, float], load: float, partitions: int) -> dict[str, CapacityNeed]:
    """What each service needs to carry a load with one instance gone.

    Args:
        per_million: CPU-seconds of each service for a million events, at its most.
        load: events a second.
        partitions: of the stream: so many instances of a consumer can work at the same time.
    """
    found = {}
    for name, cost in per_million.items():
        cores = cost / 1e6 * load
        if name == "enrich":
            note = f"one works, on {max(1, math.ceil(cores / USABLE))} core(s); the other is a warm standby"
            found[name] = CapacityNeed(2, cores, note)
        elif name == "kafka":
            found[name] = CapacityNeed(
                3, cores, "three copies of each event; the cores are those of one copy"
            )
        else:
            working = max(1, math.ceil(cores / USABLE))
            short = name != "ingest" and working > partitions
            note = f"more than the stream's {partitions} partitions can use" if short else ""
            found[name] = CapacityNeed(working + 1, cores, note)
    return found
