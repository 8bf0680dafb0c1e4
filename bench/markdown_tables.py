"""Formats numbers and tables as Markdown. Pure."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

DASH = "-"


def median(values: Iterable[float | None]) -> float | None:
    """Median of the known values."""
    known_values = [value for value in values if value is not None]
    return statistics.median(known_values) if known_values else None


def ms(value: float | None) -> str:
    return DASH if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def count(value: float | None) -> str:
    return DASH if value is None else f"{value:,.0f}"


def one_digit(value: float | None) -> str:
    return DASH if value is None else f"{value:,.1f}"


def percent(value: float | None) -> str:
    return DASH if value is None else f"{value:.0%}"


def times(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}"


def goal(figure_text: str, value: float | None, bound: float, unit: str = "times") -> str:
    """A sentence with the figure, its goal and the distance between them."""
    if value is None:
        return (
            f"Goal: {figure_text} at most {bound:g} {unit}. Not known: a run that it needs is missing or went "
            "wrong.\n"
        )
    distance = abs(value / bound - 1)
    verdict = (
        f"reached, {distance:.0%} below the bound"
        if value <= bound
        else f"missed, {distance:.0%} above the bound"
    )
    value_text = times(value) if unit == "times" else ms(value)
    return f"Goal: {figure_text} at most {bound:g} {unit}. It is {value_text} {unit}: {verdict}.\n"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def sound(step: Mapping[str, Any]) -> bool:
    """Whether every event was accepted and arrived exactly once, unchanged."""
    return not (step["lost"] or step["wrong"] or step["refused"])
