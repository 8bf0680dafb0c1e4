"""The result of changes under load, from the logs of sender and destination and from observe. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any, Final

from hifi_cli.demo.colours.colour_report import down_minutes
from hifi_cli.demo.expected import Deliveries
from hifi_cli.demo.tour_parts import TourPart
from hifi_cli.demo.verify import Comparison, SentEvent

_NS: Final = 1_000_000_000
MINUTE_NS: Final = 60 * _NS


@dataclass(slots=True)
class ChangeWindow:
    """One change while it is made.

    Attributes:
        name: of the change.
        began_ns: when it began, nanoseconds since 1970 UTC; the events before it are what it is compared with.
        ended_ns: when the changed colour had got every request for a while; 0: it failed.
        seen: what showed that the change is in force.
        observed: minutes over both colours, as observe reports them.
        parts: name to when this part of the change began, nanoseconds since 1970 UTC; it ends where the next begins.
    """

    name: str
    began_ns: int
    ended_ns: int = 0
    seen: list[str] = field(default_factory=list)
    observed: list[dict[str, Any]] = field(default_factory=list)
    parts: dict[str, int] = field(default_factory=dict)


def outcome(
    parts: Sequence[TourPart],
    windows: Sequence[ChangeWindow],
    sent: Mapping[str, SentEvent],
    comparison: Comparison,
    expected: Mapping[str, Deliveries],
    measured_s: float,
    highest_ratio: float,
) -> dict[str, Any]:
    """The result as JSON: figures, those of each change, and what broke a promise.

    Args:
        parts: one for each change.
        windows: of the changes.
        sent: log of the sender.
        comparison: of the arrivals with what was accepted.
        expected: event id to its deliveries.
        measured_s: how long before a change is measured, seconds.
        highest_ratio: of the p95 lag during a change to that before it.
    """
    accepted = {name: sent_event for name, sent_event in sent.items() if sent_event.accepted}
    lags = {
        name: (
            sent_event.answered_ns,
            max(comparison.arrived[path, name] for path in expected[name]) - sent_event.answered_ns,
        )
        for name, sent_event in accepted.items()
        if all((path, name) in comparison.arrived for path in expected[name])
    }
    numbers: dict[str, Any] = {
        "accepted": len(accepted),
        "lost": len(accepted) - len(lags),
        "duplicates": comparison.duplicates,
        "mismatched": comparison.mismatched + comparison.unknown,
        "not_accepted": len(sent) - len(accepted),
        "down_minutes": down_minutes(sent, comparison.arrived, expected),
    }
    failures = [f"{name}: {count}" for name, count in numbers.items() if count and name != "accepted"]
    failures += [f"{part.name}: {part.seen}" for part in parts if not part.ok]
    changes = []
    for window in windows:
        before_ms = _p95_ms(lags.values(), window.began_ns - round(measured_s * _NS), window.began_ns)
        p95_ms = _p95_ms(lags.values(), window.began_ns, window.ended_ns)
        change = {
            "change": window.name,
            "seconds": round(max(0, window.ended_ns - window.began_ns) / _NS, 1),
            "seen": "; ".join(window.seen),
            "p95_ms_before": before_ms,
            "p95_ms": p95_ms,
            "parts": _parts(window, lags.values()),
            "observe": _observed(window, accepted),
        }
        change["p95_ratio"] = round(p95_ms / before_ms, 2) if before_ms else 0.0
        changes.append(change)
        failures += _broken(change, highest_ratio) if window.ended_ns else []
    return numbers | {"changes": changes, "failures": failures}


def _broken(change: Mapping[str, Any], highest_ratio: float) -> list[str]:
    """The promises that a change broke, for people."""
    counts, broken_promises = change["observe"], []
    wrong_counts = [name for name in ("lost", "duplicates", "down", "incomplete") if counts[name]]
    if wrong_counts or not counts["in"] or counts["in"] != counts["accepted_by_sender"]:
        broken_promises.append(f"{change['change']}: observe says {counts}")
    if not 0 < change["p95_ratio"] <= highest_ratio:
        broken_promises.append(f"{change['change']}: the p95 lag is {change['p95_ratio']} times that before")
    return broken_promises


def _observed(window: ChangeWindow, accepted: Mapping[str, SentEvent]) -> dict[str, int]:
    """Counts of observe for the minutes of a change, beside those of the sender."""
    rows = window.observed
    minutes = {row["minute"] for row in rows}
    sums = {name: sum(row[name] for row in rows) for name in ("in", "lost", "duplicates")}
    return sums | {
        "minutes": len(rows),
        "down": sum(row["state"] == "down" for row in rows),
        "incomplete": sum(bool(row["missing"]) for row in rows),
        # The sender writes the time at which it sends into the event, and events count in the minute of their own time.
        "accepted_by_sender": sum(
            sent_event.sent_ns // MINUTE_NS in minutes for sent_event in accepted.values()
        ),
    }


def _parts(window: ChangeWindow, lags: Collection[tuple[int, int]]) -> dict[str, dict[str, float]]:
    """How long each part of a change took, and the p95 lag in it."""
    ends_ns = [*window.parts.values(), window.ended_ns]
    return {
        name: {"seconds": round(max(0, end - begin_ns) / _NS, 1), "p95_ms": _p95_ms(lags, begin_ns, end)}
        for (name, begin_ns), end in zip(window.parts.items(), ends_ns[1:], strict=True)
    }


def _p95_ms(lags: Iterable[tuple[int, int]], start_ns: int, end_ns: int) -> float:
    """The p95 lag of the events that were accepted in a span, milliseconds; 0 without any."""
    lags_ns = [lag for at_ns, lag in lags if start_ns <= at_ns < end_ns]
    return round(quantiles(lags_ns, n=20)[-1] / 1e6, 1) if len(lags_ns) > 1 else 0.0
