"""The report of the demo: as JSON and as tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from rich.table import Table

from hifi_cli.demo.expected import Deliveries
from hifi_cli.demo.topic_lags import TopicLags
from hifi_cli.demo.verify import Comparison, SentEvent
from hifi_cli.display.tables import table
from hifi_cli.display.units import mebibytes, milliseconds

TOPICS: Final = ("raw", "normalized", "enriched", "receipts")
QUANTILES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True)
class DemoRun:
    """Records of one run."""

    sent: Mapping[str, SentEvent]
    expected: Mapping[str, Deliveries]
    comparison: Comparison
    topic_lags: TopicLags
    rate: float
    seconds: float
    trigger: str
    start_seconds: float
    cpu_seconds: Mapping[str, float]
    rss_bytes: Mapping[str, int]


def report(demo_run: DemoRun) -> dict[str, Any]:
    """Compute the report. Lags are in ms, from the first byte of the request unless the key says otherwise."""
    accepted_ids = [name for name, request in demo_run.sent.items() if request.accepted]
    delivered_ids = [name for name in accepted_ids if _complete(demo_run, name)]
    dead_ids = [name for name in accepted_ids if name in demo_run.topic_lags.dead]
    lost_count = len(set(accepted_ids) - set(delivered_ids) - set(dead_ids))
    lags = _lags(demo_run)
    return {
        "accepted": len(accepted_ids),
        "delivered": len(delivered_ids),
        "lost": lost_count,
        "duplicates": demo_run.comparison.duplicates,
        "dead_lettered": len(dead_ids),
        "mismatched": demo_run.comparison.mismatched + demo_run.comparison.unknown,
        "refused": sum(request.status not in (0, 202) for request in demo_run.sent.values()),
        "unanswered": sum(request.status == 0 for request in demo_run.sent.values()),
        "deliveries": dict(sorted(demo_run.comparison.by_path.items())),
        "seconds": round(demo_run.seconds, 3),
        "rate": demo_run.rate,
        "trigger": demo_run.trigger,
        "start_seconds": round(demo_run.start_seconds, 1),
        "lag_ms": quantiles(lags["sent"]),
        "lag_from_accepted_ms": quantiles(lags["accepted"]),
        "lag_from_due_ms": quantiles(lags["due"]),
        "answer_ms": quantiles(
            (request.answered_ns - request.sent_ns) / 1e6
            for request in demo_run.sent.values()
            if request.status
        ),
        "longest_pause_ms": round(_longest_pause_ms(demo_run), 1),
        "hops": {topic: quantiles(demo_run.topic_lags.lags_ms.get(topic, ())) for topic in TOPICS},
        "copies": demo_run.topic_lags.copies,
        "outcomes": demo_run.topic_lags.outcomes,
        "cpu_seconds": {name: round(cpu_s, 2) for name, cpu_s in demo_run.cpu_seconds.items()},
        "rss_bytes": dict(demo_run.rss_bytes),
    }


def is_good(numbers: Mapping[str, Any]) -> bool:
    """Whether events were accepted and every one of them was delivered exactly as declared."""
    failure_counts = ("lost", "duplicates", "dead_lettered", "mismatched", "refused", "unanswered")
    return numbers["accepted"] == numbers["delivered"] > 0 and not any(
        numbers[name] for name in failure_counts
    )


def quantiles(values: Iterable[float]) -> dict[str, float | None]:
    """Return p50, p95, p99 and max (nearest-rank method)."""
    ordered_values = sorted(values)
    return {name: _quantile(ordered_values, share) for name, share in QUANTILES.items()}


def _quantile(ordered_values: Sequence[float], share: float) -> float | None:
    if not ordered_values:
        return None
    index = max(0, -(-len(ordered_values) * round(share * 100) // 100) - 1)
    return round(ordered_values[index], 2)


def _complete(demo_run: DemoRun, name: str) -> bool:
    return all((path, name) in demo_run.comparison.arrived for path in demo_run.expected[name])


def _lags(demo_run: DemoRun) -> dict[str, list[float]]:
    """Return the lags of all first deliveries, until the destination's answer, by where they are measured from."""
    lags: dict[str, list[float]] = {"accepted": [], "sent": [], "due": []}
    for (_, name), answered_ns in demo_run.comparison.arrived.items():
        request = demo_run.sent.get(name)
        if request is None:
            continue
        lags["sent"].append((answered_ns - request.sent_ns) / 1e6)
        lags["due"].append((answered_ns - request.due_ns) / 1e6)
        if name in demo_run.topic_lags.accepted_us:
            lags["accepted"].append(answered_ns / 1e6 - demo_run.topic_lags.accepted_us[name] / 1e3)
    return lags


def _longest_pause_ms(demo_run: DemoRun) -> float:
    """Return the longest time between two deliveries."""
    arrivals = sorted(demo_run.comparison.arrived.values())
    return max((after - before for before, after in pairwise(arrivals)), default=0) / 1e6


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Make the tables printed at the end of the demo."""
    return [_counts(numbers), _lag_table(numbers), _cost(numbers)]


def _counts(numbers: Mapping[str, Any]) -> Table:
    rows = table("=outcome", ">count", title="\nEvents")
    for name in (
        "accepted",
        "delivered",
        "lost",
        "duplicates",
        "dead_lettered",
        "mismatched",
        "refused",
        "unanswered",
    ):
        count = numbers[name]
        is_failure = name not in ("accepted", "delivered") and count
        rows.add_row(name.replace("_", "-"), f"[bold red]{count:,}[/]" if is_failure else f"{count:,}")
    for path, count in numbers["deliveries"].items():
        rows.add_row(f"[dim]deliveries to {path}[/]", f"[dim]{count:,}[/]")
    return rows


def _lag_table(numbers: Mapping[str, Any]) -> Table:
    rows = table("=measured at", *(f">{name}" for name in QUANTILES), title="\nLag since acceptance")
    for topic, lag in numbers["hops"].items():
        rows.add_row(f"topic {topic}", *(milliseconds(lag[name]) for name in QUANTILES))
    end = numbers["lag_ms"]
    rows.add_row(
        "[bold]destination, since sending[/]", *(f"[bold]{milliseconds(end[name])}[/]" for name in QUANTILES)
    )
    due_lag = numbers["lag_from_due_ms"]
    rows.add_row(
        "[dim]destination, since due time[/]",
        *(f"[dim]{milliseconds(due_lag[name])}[/]" for name in QUANTILES),
    )
    rows.caption = f"Longest time without a delivery: {milliseconds(numbers['longest_pause_ms'])}"
    rows.caption_justify = "left"
    return rows


def _cost(numbers: Mapping[str, Any]) -> Table:
    rows = table("=service", ">CPU time", ">memory", title="\nResources")
    for name, cpu_s in numbers["cpu_seconds"].items():
        rows.add_row(name, f"{cpu_s:,.1f} s", mebibytes(numbers["rss_bytes"].get(name, 0)))
    return rows
