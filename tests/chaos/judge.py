"""What the books say about a run. Pure: books in, verdict out."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Lines = Sequence[Mapping[str, Any]]
AFTERMATH_S = 20
"""After the end of a fault, what it left half-done may still come a second time for so long (session time-outs)."""


@dataclass(frozen=True, slots=True)
class Window:
    """A fault: what was done to whom, from when until when, wall time in seconds."""

    fault: str
    target: str
    start_s: float
    end_s: float
    ready_again_s: float | None = None

    @property
    def may_repeat(self) -> bool:
        """Faults in which DESIGN allows a delivery to come twice: egest dies or loses its lease while it sends."""
        return (
            self.target.startswith("egest") and self.fault in {"kill", "freeze", "cut"}
        ) or self.target == "brokers"


@dataclass(slots=True)
class Verdict:
    """The invariants of a run, counted. `failures` is empty when all hold."""

    sent: int = 0
    acknowledged: int = 0
    delivered: dict[str, int] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    twice: int = 0
    twice_explained: int = 0
    out_of_order: int = 0
    failures: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For the report."""
        return asdict(self) | {"lost": len(self.lost), "lost_ids": self.lost[:20]}


def judge(
    sent: Lines,
    arrived: Lines,
    dead: Iterable[tuple[str, str]],
    first_pass: Iterable[tuple[str, str]],
    raw_order: Mapping[str, int],
    windows: Sequence[Window],
    destinations: Sequence[str],
) -> Verdict:
    """Compare what was acknowledged with what arrived.

    Args:
        sent: the sender's book.
        arrived: the destination's book.
        dead: (event id, destination) of the dead letters; destination "" stands for all.
        first_pass: (event id, destination) of the deliveries that took a single request.
        raw_order: event id to its place in the topic `raw`, comparable within a key.
        windows: the faults.
        destinations: every destination that each event must reach.
    """
    verdict = Verdict(sent=len(sent))
    acknowledged = {line["id"] for line in sent if line["status"] == 202}
    verdict.acknowledged = len(acknowledged)
    dead = set(dead)
    first_pass = set(first_pass)
    for to in destinations:
        lines = [line for line in arrived if line["to"] == to]
        clean = Counter(line["id"] for line in lines if line["clean"])
        buried = {event for event, where in dead if where in {to, ""}}
        verdict.delivered[to] = len(clean)
        verdict.dead[to] = len(buried)
        verdict.lost += [f"{to}:{event}" for event in sorted(acknowledged - clean.keys() - buried)]
        _count_repeats(verdict, to, lines, clean, windows)
        verdict.out_of_order += _disorder(
            lines, {event for event, where in first_pass if where == to}, raw_order
        )
    if verdict.lost:
        verdict.failures.append(
            f"{len(verdict.lost)} acknowledged deliveries neither arrived nor are dead letters"
        )
    if verdict.twice > verdict.twice_explained:
        verdict.failures.append(
            f"{verdict.twice - verdict.twice_explained} deliveries arrived twice without a reason"
        )
    if verdict.out_of_order:
        verdict.failures.append(f"{verdict.out_of_order} deliveries overtook an earlier one of their key")
    return verdict


def _count_repeats(
    verdict: Verdict, to: str, lines: Lines, clean: Counter[str], windows: Sequence[Window]
) -> None:
    times = defaultdict(list)
    for line in lines:
        if line["clean"] and clean[line["id"]] > 1:
            times[line["id"]].append(line["at_s"])
    for arrivals in times.values():
        verdict.twice += len(arrivals) - 1
        explained = any(
            window.may_repeat and window.start_s - 5 <= at_s <= window.end_s + AFTERMATH_S
            for window in windows
            for at_s in arrivals
        )
        verdict.twice_explained += (len(arrivals) - 1) * explained


def _disorder(lines: Lines, first_pass: set[str], raw_order: Mapping[str, int]) -> int:
    """Arrivals of first passes behind a later event of their key."""
    highest: dict[str, int] = {}
    seen: set[str] = set()
    count = 0
    for line in lines:
        event, key = line["id"], line["key"]
        if event not in first_pass or event in seen or event not in raw_order:
            continue
        seen.add(event)
        if raw_order[event] < highest.get(key, -1):
            count += 1
        highest[key] = max(highest.get(key, -1), raw_order[event])
    return count
