"""The report of a tour of two colours, made from the logs of sender and destination alone."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hifi_cli.demo.expected import Deliveries
from hifi_cli.demo.tour_parts import TourPart
from hifi_cli.demo.tour_report import report
from hifi_cli.demo.verify import Comparison, SentEvent

SLO_S: Final = 10.0
"""p95 of the time from acceptance to delivery in one minute; sender, destination and both colours share one machine."""
FAILED_SHARE: Final = 0.01
"""A minute with more failed requests than this is down."""
_MINUTE_NS: Final = 60_000_000_000


def colour_report(
    parts: Sequence[TourPart],
    sent_events: Mapping[str, SentEvent],
    comparison: Comparison,
    expected: Mapping[str, Deliveries],
    declared_duplicates: int,
) -> dict[str, Any]:
    """The report as JSON.

    Args:
        parts: that have ended.
        sent_events: log of the sender.
        comparison: of the arrivals with what is expected.
        expected: event id to its deliveries.
        declared_duplicates: most deliveries that may be repeated: those under way when a colour was killed.
    """
    numbers = report(parts, sent_events, comparison, expected, set())
    del numbers["dead_lettered"]
    return numbers | {
        "declared_duplicates": declared_duplicates,
        "down_minutes": down_minutes(sent_events, comparison.arrived, expected),
    }


def colours_are_good(numbers: Mapping[str, Any]) -> bool:
    """Whether every part showed what it should, nothing is lost, and duplicates are only those that are declared."""
    return (
        all(part["ok"] for part in numbers["steps"])
        and numbers["accepted"] == numbers["delivered"] > 0
        and numbers["lost"] == numbers["mismatched"] == numbers["down_minutes"] == 0
        and numbers["duplicates"] <= numbers["declared_duplicates"]
    )


def down_minutes(
    sent_events: Mapping[str, SentEvent],
    arrived: Mapping[tuple[str, str], int],
    expected: Mapping[str, Deliveries],
) -> int:
    """Minutes whose p95 is over the SLO, or in which too many requests failed; an event that never arrived is late."""
    lags_ns: defaultdict[int, list[float]] = defaultdict(list)
    failures_by_minute: defaultdict[int, list[bool]] = defaultdict(list)
    for name, request in sent_events.items():
        minute = request.due_ns // _MINUTE_NS
        failures_by_minute[minute].append(not request.accepted)
        if request.accepted:
            lags_ns[minute] += [
                arrived.get((path, name), float("inf")) - request.answered_ns for path in expected[name]
            ]
    return sum(
        _p95(lags_ns[minute]) > SLO_S * 1e9 or sum(answers) > len(answers) * FAILED_SHARE
        for minute, answers in failures_by_minute.items()
    )


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))] if values else 0.0
