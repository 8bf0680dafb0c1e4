"""The report of a tour of the control plane: as JSON and as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from hifi_cli.demo.tour_parts import TourPart
from hifi_cli.demo.verify import Comparison, SentEvent
from hifi_cli.display.tables import table


def report(
    parts: Sequence[TourPart],
    sent_events: Mapping[str, SentEvent],
    comparison: Comparison,
    expected: Mapping[str, Any],
    dead_ids: set[str],
) -> dict[str, Any]:
    """The report of a tour. Events, each counted once; duplicates are requests."""
    accepted_ids = [name for name, request in sent_events.items() if request.accepted]
    delivered_ids = [
        name for name in accepted_ids if all((path, name) in comparison.arrived for path in expected[name])
    ]
    lost_ids = set(accepted_ids) - set(delivered_ids) - dead_ids
    return {
        "steps": [part.json() for part in parts],
        "accepted": len(accepted_ids),
        "delivered": len(delivered_ids),
        "lost": len(lost_ids),
        "duplicates": comparison.duplicates,
        "dead_lettered": len(dead_ids & set(accepted_ids)),
        "mismatched": comparison.mismatched + comparison.unknown,
        "refused": sum(request.status not in (0, 202) for request in sent_events.values()),
    }


def is_good(numbers: Mapping[str, Any]) -> bool:
    """Whether every part showed what it should, and every accepted event was delivered once."""
    failure_counts = ("lost", "duplicates", "dead_lettered", "mismatched")
    parts_ok = all(part["ok"] for part in numbers["steps"])
    return (
        parts_ok
        and numbers["accepted"] == numbers["delivered"] > 0
        and not any(numbers[name] for name in failure_counts)
    )


def tour_table(numbers: Mapping[str, Any], title: str) -> Table:
    """The table printed at the end of a tour."""
    rows = table(">part", "what it shows", "seen", ">time", title=f"\n{title}")
    for number, part in enumerate(numbers["steps"], 1):
        remark = escape(part["seen"]) if part["ok"] else f"[bold red]{escape(part['seen'])}[/]"
        rows.add_row(str(number), part["name"], remark, f"{part['seconds']:,.0f} s")
    rows.caption = ", ".join(
        f"{count:,} {name.replace('_', '-')}" for name, count in numbers.items() if isinstance(count, int)
    )
    rows.caption_justify = "left"
    return rows
