"""Draw a rating as SVG: lag over rate, and CPU cost over rate. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

WIDTH: Final = 760
PANEL: Final = 260
LEFT: Final = 70
RIGHT: Final = 150
TOP: Final = 46
GAP: Final = 60
COLOURS: Final = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Paul Tol's bright colour scheme, safe for colour-blind readers."""
QUANTILES: Final = ("p50", "p95", "p99")


def chart(numbers: Mapping[str, Any], title: str) -> str:
    """Return a report of `hifi rate` as an SVG document."""
    steps = sorted(numbers["steps"], key=lambda step: step["rate"])
    height = TOP + 2 * PANEL + GAP + 50
    elements = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="15" font-weight="bold">{escape(title)}</text>',
        *_lag_panel(steps, numbers, TOP),
        *_cost_panel(steps, TOP + PANEL + GAP),
        "</svg>",
    ]
    return "\n".join(elements) + "\n"


def _lag_panel(steps: Sequence[Mapping[str, Any]], numbers: Mapping[str, Any], top: float) -> list[str]:
    slo_ms = numbers["slo_ms"]
    values = [slo_ms, *(step["lag_ms"][name] or slo_ms for step in steps for name in QUANTILES)]
    low, high = 10 ** math.floor(math.log10(max(0.1, min(values)))), 10 ** math.ceil(math.log10(max(values)))

    def height(value: float) -> float:
        return top + PANEL * (1 - math.log10(max(value, low) / low) / math.log10(high / low))

    elements = [f'<text x="{LEFT}" y="{top - 8}">End-to-end lag from the due time, ms</text>']
    grid_value = low
    while grid_value <= high:
        elements += _grid(height(grid_value), f"{grid_value:,g}")
        grid_value *= 10
    x_of = _x_scale(steps)
    for name, colour in zip(QUANTILES, COLOURS, strict=False):
        points = [
            (x_of(step["rate"]), height(step["lag_ms"][name])) for step in steps if step["lag_ms"][name]
        ]
        elements.append(_line(points, colour))
        elements += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in points]
        if points:
            elements.append(
                f'<text x="{WIDTH - RIGHT + 10}" y="{points[-1][1] + 4:.1f}" fill="{colour}">{name}</text>'
            )
    y = height(slo_ms)
    elements.append(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#000" stroke-dasharray="5 4"/>'
    )
    elements.append(f'<text x="{LEFT + 4}" y="{y - 4:.1f}">SLO for p95: {slo_ms:,g} ms</text>')
    if numbers["rated"]:
        rated_x = x_of(numbers["rated"]["rate"])
        elements.append(
            f'<line x1="{rated_x:.1f}" x2="{rated_x:.1f}" y1="{top}" y2="{top + PANEL}" stroke="#000"/>'
        )
        elements.append(f'<text x="{rated_x - 4:.1f}" y="{top + PANEL - 6}" text-anchor="end">rated</text>')
    return elements + _rates(steps, x_of, top)


def _cost_panel(steps: Sequence[Mapping[str, Any]], top: float) -> list[str]:
    """Draw one stacked bar for each step: the CPU cost of each service."""
    service_names = list(steps[0]["cpu_seconds_per_million"])
    max_cost = max(sum(step["cpu_seconds_per_million"].values()) for step in steps) or 1
    unit = 10 ** math.floor(math.log10(max_cost))
    elements = [f'<text x="{LEFT}" y="{top - 8}">CPU-seconds per million events</text>']
    for count in range(int(max_cost / unit) + 1):
        elements += _grid(top + PANEL * (1 - count * unit / max_cost), f"{count * unit:,g}")
    x_of = _x_scale(steps)
    for step in steps:
        baseline = top + PANEL
        for name, colour in zip(service_names, COLOURS, strict=False):
            size = PANEL * step["cpu_seconds_per_million"][name] / max_cost
            baseline -= size
            elements.append(
                f'<rect x="{x_of(step["rate"]) - 9:.1f}" y="{baseline:.1f}" width="18" height="{size:.1f}" '
                f'fill="{colour}"/>'
            )
    for index, (name, colour) in enumerate(zip(service_names, COLOURS, strict=False)):
        y = top + 16 + 18 * index
        elements.append(
            f'<rect x="{WIDTH - RIGHT + 20}" y="{y - 10}" width="11" height="11" fill="{colour}"/>'
        )
        elements.append(f'<text x="{WIDTH - RIGHT + 37}" y="{y}">{escape(name)}</text>')
    return elements + _rates(steps, x_of, top)


def _x_scale(steps: Sequence[Mapping[str, Any]]) -> Any:
    """Return a function from a rate to its x coordinate (logarithmic)."""
    low, high = steps[0]["rate"], max(steps[-1]["rate"], steps[0]["rate"] * 1.01)
    width = WIDTH - LEFT - RIGHT - 40
    return lambda rate: LEFT + 20 + width * math.log(rate / low) / math.log(high / low)


def _rates(steps: Sequence[Mapping[str, Any]], x_of: Any, top: float) -> list[str]:
    """Label the x axis with the rates that fit."""
    elements, free_x = [], 0.0
    for step in steps:
        rate_x = x_of(step["rate"])
        if rate_x >= free_x:
            elements.append(
                f'<text x="{rate_x:.1f}" y="{top + PANEL + 18}" text-anchor="middle">{step["rate"]:,.0f}</text>'
            )
            free_x = rate_x + 46
    return [*elements, f'<text x="{WIDTH - RIGHT + 10}" y="{top + PANEL + 18}">events/s</text>']


def _grid(y: float, text: str) -> list[str]:
    return [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>',
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>',
    ]


def _line(points: Sequence[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
