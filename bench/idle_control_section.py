"""Writes the section of bench/notes/benchmarks.md about what an idle control plane costs. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from growth_sections import trouble
from markdown_tables import DASH, count, goal, median, one_digit, table

KIND = "idle_control"
CONTROL = ("rollout", "deploy", "scale", "manage")
MOST_SHARE = 5.0
_TEXT = (
    "## An idle control plane\n\nReal-time, 200 ev/s, a mesh with its control plane of which nothing is asked. "
    "CPU time while events were sent; that of the mesh includes brokers and observe, and not the control plane.\n\n"
)


def sections(kinds: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """The section, if there are results; each run is a row."""
    points = [point for result in kinds.get(KIND, ()) for point in result["points"].values()]
    if points:
        head = [
            "ev/s",
            "mesh, % of a core",
            *(f"{service}, % of a core" for service in CONTROL),
            "share, %",
            "remark",
        ]
        share = median(share_percent(point) for point in points if not trouble(point))
        figure_text = "CPU of the idle control plane, relative to that of the mesh,"
        yield (
            _TEXT
            + table(head, [_row(point) for point in points])
            + "\n"
            + goal(figure_text, share, MOST_SHARE, "%")
        )


def share_percent(point: Mapping[str, Any]) -> float | None:
    """CPU time of the control plane in percent of that of the mesh without it."""
    mesh = _mesh(point)
    control = sum(_core_share(point, service) or 0.0 for service in CONTROL)
    return 100 * control / mesh if mesh else None


def _row(point: Mapping[str, Any]) -> list[str]:
    if reason := trouble(point):
        return [*[DASH] * (len(CONTROL) + 3), reason]
    rate = median(step["rate"] for step in point["steps"])
    shares = [one_digit(_percent(_core_share(point, service))) for service in CONTROL]
    return [count(rate), one_digit(_percent(_mesh(point))), *shares, one_digit(share_percent(point)), DASH]


def _mesh(point: Mapping[str, Any]) -> float | None:
    return median(
        sum(core_share for name, core_share in step["core_shares"].items() if name not in CONTROL)
        for step in point["steps"]
    )


def _core_share(point: Mapping[str, Any], service: str) -> float | None:
    return median(step["core_shares"].get(service) for step in point["steps"])


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value
