"""What the books say about a run. Pure: books in, verdict out."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Lines = Sequence[Mapping[str, Any]]
AFTERMATH_S = 20
"""After the end of a fault, what it left half-done may still come a second time for so long (session time-outs)."""
WITHOUT_ANSWER = frozenset({"hang", "reset", "silent", "truncate", "late"})
"""Modes of the destination in which a request is ambiguous whatever else happens."""
BEFORE_S = 5
"""A request that is on its way when a fault comes began at most so long before: the destination's time-out and more."""


@dataclass(frozen=True, slots=True)
class Window:
    """A fault: what was done to whom, from when until when, wall time in seconds."""

    fault: str
    target: str
    start_s: float
    end_s: float
    ready_again_s: float | None = None
    flowing_again_s: float | None = None
    """From the end of the fault until the first event arrived that was sent after it, seconds."""

    @property
    def may_repeat(self) -> bool:
        """Faults in which DESIGN allows a delivery to come twice: egest dies or loses its lease while it sends."""
        return (
            self.target.startswith("egest") and self.fault in {"kill", "freeze", "cut"}
        ) or self.target == "brokers"


def kind_of(fault: str, target: str) -> str:
    """A fault and the service that it hit, as in `kill egest`."""
    return f"{fault} {re.sub('-[0-9]+$', '', target)}"


@dataclass(slots=True)
class Verdict:
    """The invariants of a run, counted. `failures` is empty when all hold."""

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
        """For the report."""
        return asdict(self) | {
            "lost": len(self.lost),
            "lost_ids": self.lost[:20],
            "twice_ids": self.twice_ids[:20],
        }


def judge(
    sent: Lines,
    arrived: Lines,
    dead: Iterable[tuple[str, str]],
    first_pass: Iterable[tuple[str, str]],
    raw_order: Mapping[str, int],
    windows: Sequence[Window],
    destinations: Sequence[str],
    receipts: Mapping[tuple[str, str], float],
    ambiguous: Mapping[tuple[str, str], int],
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
        receipts: (event id, destination) to when Kafka got the first receipt `delivered`, wall time in seconds.
        ambiguous: (event id, destination) to the requests of which egest said that their answer was ambiguous.
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
        _count_repeats(verdict, to, lines, windows, receipts, ambiguous)
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
    verdict: Verdict,
    to: str,
    lines: Lines,
    windows: Sequence[Window],
    receipts: Mapping[tuple[str, str], float],
    ambiguous: Mapping[tuple[str, str], int],
) -> None:
    """Arrivals beyond the first, and which of them DESIGN allows.

    Allowed is one for each ambiguous answer, and what was between its first byte and its receipt when a fault came: no
    receipt was there before it.
    """
    times = defaultdict(list)
    silent = Counter(line["id"] for line in lines if line["mode"] in WITHOUT_ANSWER)
    for line in lines:
        if line["clean"] and not line.get("ambiguous"):
            times[line["id"]].append(line["at_s"])
    for event, arrivals in times.items():
        if len(arrivals) == 1:
            continue
        verdict.twice += len(arrivals) - 1
        receipt_s = receipts.get((event, to))
        unanswered = silent[event] + len(arrivals) - 1
        explained = ambiguous.get((event, to), 0) >= unanswered or any(
            window.may_repeat
            and window.start_s - BEFORE_S <= min(arrivals)
            and max(arrivals) <= window.end_s + AFTERMATH_S
            and (receipt_s is None or receipt_s >= window.start_s)
            for window in windows
        )
        verdict.twice_explained += (len(arrivals) - 1) * explained
        if not explained:
            verdict.twice_ids.append(f"{to}:{event}")


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
