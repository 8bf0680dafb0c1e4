"""Writes the sections of bench/notes/benchmarks.md about minutes that are easily slow. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from growth_sections import trouble
from markdown_tables import DASH, count, ms, one_digit, table

TITLES = {
    "first_minute": "## First minute after ready\n\n500 single ev/s from the first second on, default settings.\n\n",
    "rolling": "## Rolling restart\n\n400 single ev/s for ten minutes, while every instance is replaced once.\n\n",
    "overload": "## Overload\n\nTwice as many single events as the mesh was rated just before, for 30 s.\n"
    "Lag counts from the time at which the sender sent the request.\n\n",
}


def sections(kinds: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """One section for each kind with results; each run is a row."""
    for kind, title in TITLES.items():
        points = [point for result in kinds.get(kind, ()) for point in result["points"].items()]
        if points:
            yield title + _table(kind, points)


def _table(kind: str, points: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    head = ["mesh", "ready after, s", "p50, ms", "p95, ms", "lost", "duplicates"]
    if kind == "overload":
        head += [
            "rated, ev/s",
            "offered, ev/s",
            "accepted, ev/s",
            "refusals: p95 of the answer, ms",
            "remark",
        ]
    else:
        head += ["slowest part: p95, ms", "remark"]
    return table(head, [_row(kind, name, point) for name, point in points])


def _row(kind: str, name: str, point: Mapping[str, Any]) -> list[str]:
    lag = point.get("lag_ms", {})
    row = [name, one_digit(point.get("start_seconds")), ms(lag.get("p50")), ms(lag.get("p95"))]
    row += [count(point.get("lost")), count(point.get("duplicates"))]
    if kind == "overload":
        refusal_lag = point.get("refused_after_ms", {})
        row += [count(point.get(key)) for key in ("rated", "offered_rate", "accepted_rate")]
        row.append(ms(refusal_lag.get("p95")))
    else:
        slices = point.get("lag_ms_by_10_s") or point.get("lag_ms_by_minute") or ()
        row.append(ms(max((slice_lag["p95"] for slice_lag in slices), default=None)))
    return [*row, trouble(point) or DASH]
