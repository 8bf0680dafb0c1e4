"""Writes the first section of docs/benchmarks.md: the answers that most readers look for, in one table. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from growth_sections import (
    ALIVE,
    CHAIN,
    DEAD,
    Runs,
    cost_of,
    lag_of,
    ratio_between,
    trouble,
    usable_points,
)
from markdown_tables import DASH, count, median, ms, one_digit, table, times

MESH: Final = "mesh, real-time"
_Row = tuple[str, str, str, str]


def summary(results: Mapping[str, Any]) -> str:
    """A table of questions, hifi's figure, the chain's, and their ratio; only what was measured."""
    answers = [*_rated(results.get("rates", {})), *_rows(results.get("rows", {}))]
    return "## Summary\n\n" + table(["", "hifi", CHAIN, "ratio"], answers) if answers else ""


def _rated(rates: Mapping[str, Runs]) -> Iterator[_Row]:
    for events in ("single events", "batches of 100"):
        mesh_rate, chain_rate = (_rate(rates.get(f"{chain}, {events}", ())) for chain in (MESH, CHAIN))
        if mesh_rate:
            ratio = times(mesh_rate / chain_rate) if chain_rate else DASH
            yield (
                f"highest rate with a p95 below 1 s, {events}, ev/s",
                count(mesh_rate),
                count(chain_rate),
                ratio,
            )


def _rate(results: Runs) -> float | None:
    return median(result["rated"]["rate"] for result in results if result["rated"])


def _rows(rows: Mapping[str, Runs]) -> Iterator[_Row]:
    yield from _lags(rows.get("lag", ()))
    for kind, title in (("first_minute", "first minute after a start"), ("rolling", "rolling restart")):
        for name in _names(rows.get(kind, ())):
            p95 = _figure(rows[kind], name, lambda point: point["lag_ms"]["p95"])
            yield f"{title} ({name}): p95, ms", ms(p95), DASH, DASH
    if killed_names := _names(rows.get("standby", ())):
        longest_s = max(
            _figure(rows["standby"], name, lambda point: point["flowing_again_s"]) or 0.0
            for name in killed_names
        )
        title = f"SIGKILL of {', '.join(killed_names)} with a standby: events flow again within, s"
        yield title, one_digit(longest_s), DASH, DASH
    for name in _names(rows.get("overload", ())):
        p95 = _figure(rows["overload"], name, lambda point: point["lag_ms"]["p95"])
        refusal_ms = _figure(rows["overload"], name, lambda point: point["refused_after_ms"].get("p95"))
        yield f"{name}: p95 of what is accepted, ms", ms(p95), DASH, DASH
        yield f"{name}: p95 of the answer to what is refused, ms", ms(refusal_ms), DASH, DASH
    for kind in ("partitions", "pipes", "brokers"):
        names = _names(rows.get(kind, ()))
        if len(names) > 1:
            ratio = ratio_between(rows[kind], names[-1], names[0], cost_of)
            yield f"CPU time of an event with {names[-1]} beside {names[0]}", DASH, DASH, times(ratio)
    if "dead" in rows:
        ratio = ratio_between(rows["dead"], DEAD, ALIVE, lambda point: lag_of(point, "p95"))
        yield "p95 of nine destinations when the tenth dies, beside that before", DASH, DASH, times(ratio)


def _lags(results: Runs) -> Iterator[_Row]:
    figures: tuple[tuple[str, Callable[[Mapping[str, Any]], float | None], Callable[..., str]], ...] = (
        ("lag, p50, ms", lambda point: lag_of(point, "p50"), ms),
        ("lag, p95, ms", lambda point: lag_of(point, "p95"), ms),
        ("CPU time of a million events, s", cost_of, count),
    )
    for title, figure, text_of in figures if MESH in _names(results) else ():
        mesh_figure, chain_figure = (_figure(results, name, figure) for name in (MESH, CHAIN))
        ratio = ratio_between(results, MESH, CHAIN, figure)
        yield (
            f"500 single ev/s, default settings: {title}",
            text_of(mesh_figure),
            text_of(chain_figure),
            times(ratio),
        )


def _names(results: Runs) -> list[str]:
    return list(
        dict.fromkeys(
            name for result in results for name, point in result["points"].items() if not trouble(point)
        )
    )


def _figure(results: Runs, name: str, figure: Callable[[Mapping[str, Any]], float | None]) -> float | None:
    return median(figure(point) for point in usable_points(results, name))
