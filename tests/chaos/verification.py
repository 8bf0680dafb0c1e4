"""Compares the request logs of a run with its topics and checks every promise. Pure."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

LogLines = Sequence[Mapping[str, Any]]
AFTERMATH_S = 20
"""Deliveries interrupted by a fault may arrive again until this long after its end (session time-outs), seconds."""
WITHOUT_ANSWER = frozenset({"hang", "reset", "ambiguous_by_mode", "truncate", "late"})
"""Modes of the destination in which every request is ambiguous."""
BEFORE_S = 5
"""A request in flight at the start of a fault began at most this long before it; above the destination's time-out."""


@dataclass(frozen=True, slots=True)
class FaultWindow:
    """An injected fault: its kind, target, start and end, wall time in seconds."""

    fault: str
    target: str
    start_s: float
    end_s: float
    ready_again_s: float | None = None
    flowing_again_s: float | None = None
    """From the end of the fault to the arrival of the first event sent after it, seconds."""

    @property
    def may_repeat(self) -> bool:
        """Whether a delivery may arrive twice: egest dies or loses its lease while it sends."""
        return (
            self.target.startswith("egest") and self.fault in {"kill", "freeze", "cut"}
        ) or self.target == "brokers"


def fault_kind(fault: str, target: str) -> str:
    """A fault and the service that it targets, as in `kill egest`."""
    return f"{fault} {re.sub('-[0-9]+$', '', target)}"


@dataclass(slots=True)
class ChaosResult:
    """The result of a run; `failures` is empty when every promise holds. `twice` counts arrivals beyond the first."""

    sent: int = 0
    acknowledged: int = 0
    sent_again: int = 0
    ended_as_duplicate: int = 0
    delivered: dict[str, int] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    twice: int = 0
    twice_explained: int = 0
    twice_ids: list[str] = field(default_factory=list)
    out_of_order: int = 0
    failures: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The result as a line of the report."""
        return asdict(self) | {
            "lost": len(self.lost),
            "lost_ids": self.lost[:20],
            "twice_ids": self.twice_ids[:20],
        }


def verify(
    sent: LogLines,
    arrived: LogLines,
    dead: Iterable[tuple[str, str]],
    first_pass: Iterable[tuple[str, str]],
    raw_order: Mapping[str, int],
    windows: Sequence[FaultWindow],
    destinations: Sequence[str],
    receipts: Mapping[tuple[str, str], float],
    ambiguous: Mapping[tuple[str, str], int],
) -> ChaosResult:
    """Compare acknowledged events with arrivals.

    Args:
        sent: the sender's request log.
        arrived: the destination's request log.
        dead: (event id, destination) of each dead letter; destination "" means all.
        first_pass: (event id, destination) of each delivery that took a single request.
        raw_order: event id to its offset in the topic `raw`, comparable within a key.
        windows: the injected faults.
        destinations: destinations that every event must reach.
        receipts: (event id, destination) to the append time of its first receipt `delivered`, wall time in seconds.
        ambiguous: (event id, destination) to its number of requests with an ambiguous answer, as egest reports it.
    """
    result = ChaosResult(sent=len(sent))
    acknowledged = {line["id"] for line in sent if line["status"] == 202}
    result.acknowledged = len(acknowledged)
    dead = set(dead)
    first_pass = set(first_pass)
    for destination in destinations:
        lines = [line for line in arrived if line["to"] == destination]
        clean_counts = Counter(line["id"] for line in lines if line["clean"])
        dead_here = {event for event, event_destination in dead if event_destination in {destination, ""}}
        result.delivered[destination] = len(clean_counts)
        result.dead[destination] = len(dead_here)
        result.lost += [
            f"{destination}:{event}" for event in sorted(acknowledged - clean_counts.keys() - dead_here)
        ]
        count_repeats(result, destination, lines, windows, receipts, ambiguous)
        result.out_of_order += _disorder(
            lines,
            {event for event, event_destination in first_pass if event_destination == destination},
            raw_order,
        )
    if result.lost:
        result.failures.append(
            f"{len(result.lost)} acknowledged deliveries neither arrived nor are dead letters"
        )
    if result.twice > result.twice_explained:
        result.failures.append(
            f"{result.twice - result.twice_explained} deliveries arrived twice without a reason"
        )
    if result.out_of_order:
        result.failures.append(f"{result.out_of_order} deliveries overtook an earlier one of their key")
    return result


def count_repeats(
    result: ChaosResult,
    destination: str,
    lines: LogLines,
    windows: Sequence[FaultWindow],
    receipts: Mapping[tuple[str, str], float],
    ambiguous: Mapping[tuple[str, str], int],
) -> None:
    """Count arrivals beyond the first, and those of them that are allowed.

    One is allowed for each ambiguous answer, and for a delivery between its first byte and its receipt when a fault
    came, which had no receipt before the fault.
    """
    times = defaultdict(list)
    ambiguous_by_mode = Counter(line["id"] for line in lines if line["mode"] in WITHOUT_ANSWER)
    for line in lines:
        if line["clean"] and not line.get("ambiguous"):
            times[line["id"]].append(line["at_s"])
    for event, arrivals in times.items():
        if len(arrivals) == 1:
            continue
        result.twice += len(arrivals) - 1
        receipt_s = receipts.get((event, destination))
        unanswered = ambiguous_by_mode[event] + len(arrivals) - 1
        explained = ambiguous.get((event, destination), 0) >= unanswered or any(
            window.may_repeat
            and window.start_s - BEFORE_S <= min(arrivals)
            and max(arrivals) <= window.end_s + AFTERMATH_S
            and (receipt_s is None or receipt_s >= window.start_s)
            for window in windows
        )
        result.twice_explained += (len(arrivals) - 1) * explained
        if not explained:
            result.twice_ids.append(f"{destination}:{event}")


def _disorder(lines: LogLines, first_pass: set[str], raw_order: Mapping[str, int]) -> int:
    """Count first passes that arrived behind a later event of their key."""
    highest: dict[str, int] = {}
    seen_events: set[str] = set()
    count = 0
    for line in lines:
        event, key = line["id"], line["key"]
        if event not in first_pass or event in seen_events or event not in raw_order:
            continue
        seen_events.add(event)
        if raw_order[event] < highest.get(key, -1):
            count += 1
        highest[key] = max(highest.get(key, -1), raw_order[event])
    return count
