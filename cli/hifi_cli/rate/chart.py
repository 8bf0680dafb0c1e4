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
    parts = [
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
    return "\n".join(parts) + "\n"


def _lag_panel(steps: Sequence[Mapping[str, Any]], numbers: Mapping[str, Any], top: float) -> list[str]:
    slo_ms = numbers["slo_ms"]
    values = [slo_ms, *(step["lag_ms"][name] or slo_ms for step in steps for name in QUANTILES)]
    low, high = 10 ** math.floor(math.log10(max(0.1, min(values)))), 10 ** math.ceil(math.log10(max(values)))

    def height(value: float) -> float:
        return top + PANEL * (1 - math.log10(max(value, low) / low) / math.log10(high / low))

    parts = [f'<text x="{LEFT}" y="{top - 8}">End-to-end lag from the due time, ms</text>']
    mark = low
    while mark <= high:
        parts += _grid(height(mark), f"{mark:,g}")
        mark *= 10
    x = _places(steps)
    for name, colour in zip(QUANTILES, COLOURS, strict=False):
        points = [(x(step["rate"]), height(step["lag_ms"][name])) for step in steps if step["lag_ms"][name]]
        parts.append(_line(points, colour))
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in points]
        if points:
            parts.append(
                f'<text x="{WIDTH - RIGHT + 10}" y="{points[-1][1] + 4:.1f}" fill="{colour}">{name}</text>'
            )
    y = height(slo_ms)
    parts.append(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#000" stroke-dasharray="5 4"/>'
    )
    parts.append(f'<text x="{LEFT + 4}" y="{y - 4:.1f}">SLO for p95: {slo_ms:,g} ms</text>')
    if numbers["rated"]:
        place = x(numbers["rated"]["rate"])
        parts.append(f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{top}" y2="{top + PANEL}" stroke="#000"/>')
        parts.append(f'<text x="{place - 4:.1f}" y="{top + PANEL - 6}" text-anchor="end">rated</text>')
    return parts + _rates(steps, x, top)


def _cost_panel(steps: Sequence[Mapping[str, Any]], top: float) -> list[str]:
    """Draw one stacked bar for each step: the CPU cost of each service."""
    names = list(steps[0]["cpu_seconds_per_million"])
    most = max(sum(step["cpu_seconds_per_million"].values()) for step in steps) or 1
    unit = 10 ** math.floor(math.log10(most))
    parts = [f'<text x="{LEFT}" y="{top - 8}">CPU-seconds per million events</text>']
    for count in range(int(most / unit) + 1):
        parts += _grid(top + PANEL * (1 - count * unit / most), f"{count * unit:,g}")
    x = _places(steps)
    for step in steps:
        base = top + PANEL
        for name, colour in zip(names, COLOURS, strict=False):
            size = PANEL * step["cpu_seconds_per_million"][name] / most
            base -= size
            parts.append(
                f'<rect x="{x(step["rate"]) - 9:.1f}" y="{base:.1f}" width="18" height="{size:.1f}" fill="{colour}"/>'
            )
    for place, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
        y = top + 16 + 18 * place
        parts.append(f'<rect x="{WIDTH - RIGHT + 20}" y="{y - 10}" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 37}" y="{y}">{escape(name)}</text>')
    return parts + _rates(steps, x, top)


def _places(steps: Sequence[Mapping[str, Any]]) -> Any:
    """Return a function from a rate to its x coordinate (logarithmic)."""
    low, high = steps[0]["rate"], max(steps[-1]["rate"], steps[0]["rate"] * 1.01)
    width = WIDTH - LEFT - RIGHT - 40
    return lambda rate: LEFT + 20 + width * math.log(rate / low) / math.log(high / low)


def _rates(steps: Sequence[Mapping[str, Any]], x: Any, top: float) -> list[str]:
    """Label the x axis with the rates that fit."""
    parts, free = [], 0.0
    for step in steps:
        place = x(step["rate"])
        if place >= free:
            parts.append(
                f'<text x="{place:.1f}" y="{top + PANEL + 18}" text-anchor="middle">{step["rate"]:,.0f}</text>'
            )
            free = place + 46
    return [*parts, f'<text x="{WIDTH - RIGHT + 10}" y="{top + PANEL + 18}">events/s</text>']


def _grid(y: float, text: str) -> list[str]:
    return [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>',
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>',
    ]


def _line(points: Sequence[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
