"""Merge a minute of a pipe over both colours. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from hifi_observe.colours.front_stats import refusals
from hifi_observe.ledger.sketch import Sketch
from hifi_observe.minutes.availability import (
    DOWN,
    UNKNOWN,
    UP,
    IngestHealth,
    JudgedDeliveries,
    Judgement,
    SloLimits,
    judge,
    uptime,
)

FRONT: Final = "front"
_INGEST: Final = "ingest"
_SUMS: Final = (
    "in",
    "acknowledged",
    "delivered",
    "duplicates",
    "filtered",
    "dead",
    "waiting",
    "parked",
    "in_flight",
    "lost",
    "late",
    "backfill",
    "backfill_left",
)
_UNDELIVERED: Final = ("in_flight", "waiting", "parked", "lost")
_OF_COLOUR: Final = ("in", "delivered", "duplicates", "dead", "lost", "late", "p95_us", "state", "causes")


@dataclass(frozen=True, slots=True)
class ColourMinutes:
    """The answer of the observe of one colour.

    Attributes:
        closed: the newest minute that it has closed; -1: none.
        rows: minute to the merged minute of the colour.
        away: why it did not answer; None: it did.
        asleep_since: minute from which on no process of the colour ran; None: it is not asleep.
        fronts: minute to what the front refused, as this observe watched it.
        first: minute in which the pipe was declared in the colour, until that is closed; 0: earlier than its rows.
    """

    closed: int
    rows: Mapping[int, Mapping[str, Any]]
    away: str | None = None
    asleep_since: int | None = None
    fronts: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    first: int = 0

    def knows(self, minute: int) -> bool:
        """Whether all is known of the colour in a minute, also if it had no events.

        A minute is closed shortly before it is merged. Minutes are merged in their order, so one without a row has no
        events only if a later one has a row.
        """
        newest_merged = max(self.rows, default=-1)
        if self.away is None and (minute < self.first or minute <= min(self.closed, newest_merged)):
            return True
        return self.asleep_since is not None and minute > self.asleep_since


def merge_colours(
    pipe: str,
    minutes: Iterable[int],
    colours: Mapping[str, ColourMinutes],
    fronts: Mapping[int, Mapping[str, Any]],
    limits: SloLimits,
) -> list[dict[str, Any]]:
    """The minutes that at least one colour has closed, in their order.

    Args:
        pipe: its name.
        minutes: to merge.
        colours: name to what its observe answered.
        fronts: minute to what the front refused, of the minutes in which it was watched all the time.
        limits: of the pipe's SLO.
    """
    return [
        _merge(pipe, minute, colours, fronts.get(minute), limits)
        for minute in minutes
        if any(minute in colour.rows for colour in colours.values())
    ]


def summary_of(merged: Iterable[Mapping[str, Any]], target: float, minutes: int) -> dict[str, Any]:
    """Availability over merged minutes, minutes that were down, and minutes of which not all is known."""
    rows = list(merged)
    minutes_by_state = uptime(row["state"] for row in rows)
    return {
        "availability": minutes_by_state.json(target, minutes),
        "down_minutes": minutes_by_state.down,
        "incomplete_minutes": sum(bool(row["missing"]) for row in rows),
    }


def _merge(
    pipe: str,
    minute: int,
    colours: Mapping[str, ColourMinutes],
    front: Mapping[str, Any] | None,
    limits: SloLimits,
) -> dict[str, Any]:
    rows = {name: colour.rows[minute] for name, colour in colours.items() if minute in colour.rows}
    missing_colours = [name for name, colour in sorted(colours.items()) if not colour.knows(minute)]
    if front is None:
        missing_colours.append(FRONT)
    sums = {name: sum(row.get(name, 0) for row in rows.values()) for name in _SUMS}
    intake = _intake(rows.values(), front)
    at_us = max(row["at_us"] for row in rows.values())
    judgement = _judge(minute, at_us, rows.values(), sums, limits, intake)
    state = UNKNOWN if missing_colours and judgement.state != DOWN else judgement.state
    return {
        "pipe": pipe,
        "minute": minute,
        "at_us": at_us,
        "state": state,
        "causes": judgement.causes,
        "missing": missing_colours,
        "p95_us": judgement.p95_us,
        "slo_p95_us": limits.p95_us,
        **sums,
        "intake": asdict(intake),
        FRONT: front,
        "colours": {
            name: {"share": row["in"] / sums["in"] if sums["in"] else None}
            | {field: row[field] for field in _OF_COLOUR}
            for name, row in sorted(rows.items())
        },
    }


def _judge(
    minute: int,
    at_us: int,
    rows: Iterable[Mapping[str, Any]],
    sums: Mapping[str, int],
    limits: SloLimits,
    intake: IngestHealth,
) -> Judgement:
    """Judge the sum of the colours.

    Deliveries to a destination with an SLO of its own cannot be separated in the sum: there, the judgement of each
    colour counts.
    """
    rows, lags = list(rows), Sketch()
    for row in rows:
        lags.merge(_lags(row))
    undelivered = sum(sums[name] for name in _UNDELIVERED) - sums["backfill_left"]
    deliveries = JudgedDeliveries(lags, undelivered, sums["lost"])
    judgement = judge(deliveries, max(0, at_us - (minute + 1) * 60_000_000), limits, intake)
    if limits.destinations and judgement.state != UNKNOWN:
        causes = {cause for row in rows for cause in row["causes"]} - {_INGEST}
        causes |= {_INGEST} & set(judgement.causes)
        judgement = Judgement(DOWN if causes else UP, judgement.p95_us, sorted(causes))
    return judgement


def _intake(rows: Iterable[Mapping[str, Any]], front: Mapping[str, Any] | None) -> IngestHealth:
    """Ingest of both colours and the front are one: it is silent when both colours are, or the front is."""
    intakes = [IngestHealth.of(row["intake"]) for row in rows]
    failed_count, answered_count = refusals(front)
    gap_s = min((intake.gap_s for intake in intakes if intake.gap_s is not None), default=None)
    if front is not None:
        gap_s = max(front["gap_s"], gap_s or 0.0)
    return IngestHealth(
        gap_s,
        failed_count + sum(intake.failed for intake in intakes),
        answered_count + sum(intake.answered for intake in intakes),
        sum(intake.paused for intake in intakes),
    )


def _lags(row: Mapping[str, Any]) -> Sketch:
    """The lags of a colour's deliveries; where they were not kept, all are as long as its p95."""
    if row.get("lag_sketch") is not None:
        return Sketch.load(row["lag_sketch"])
    sketch = Sketch()
    sketch.add_many(row["p95_us"], row["delivered"])
    return sketch
