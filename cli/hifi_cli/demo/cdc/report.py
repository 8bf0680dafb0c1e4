"""The report of the demo of change data capture: as JSON and as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from hifi_cli.display.tables import table


def lag_summary(lags_ms: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99 and max of lags in ascending order, milliseconds; 0 if there are none."""
    if not lags_ms:
        return dict.fromkeys(("p50", "p95", "p99", "max"), 0.0)
    last = len(lags_ms) - 1
    indexes = {"p50": round(0.5 * last), "p95": round(0.95 * last), "p99": round(0.99 * last), "max": last}
    return {name: round(lags_ms[index], 1) for name, index in indexes.items()}


def is_good(numbers: Mapping[str, Any]) -> bool:
    """Whether every change arrived once, and both tables equal the source."""
    failure_counts = ("different", "lost", "duplicates", "unexpected")
    return numbers["changes"] > 0 and not any(numbers[name] for name in failure_counts)


def report_tables(numbers: Mapping[str, Any]) -> list[Table]:
    """The tables printed at the end."""
    rows = table(
        "destination", ">rows equal", ">rows different", title="\nRows of the tables and of the source"
    )
    for name, row_counts in numbers["tables"].items():
        rows.add_row(name, f"{row_counts['equal']:,}", f"{row_counts['different']:,}")
    lags = table("destination", ">p50", ">p95", ">p99", ">max", title="\nLag from the commit of a change")
    for name, lag in numbers["lag_ms"].items():
        lags.add_row(name, *(f"{lag[percentile]:,.0f} ms" for percentile in ("p50", "p95", "p99", "max")))
    counts = ("rows", "changes", "different", "lost", "duplicates", "ambiguous", "unexpected")
    lags.caption = ", ".join(f"{numbers[name]:,} {name}" for name in counts)
    lags.caption_justify = "left"
    return [rows, lags]
