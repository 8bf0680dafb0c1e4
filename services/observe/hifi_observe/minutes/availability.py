"""Availability: whether a minute was up, and the share of minutes that were. Pure.

A minute is down when the p95 over its deliveries is over the SLO (an undelivered one counts with its age), when its
loss is over the limit, or when ingest's heartbeat had a gap or ingest answered 5xx. A minute without enough data is
unknown, not up. Dead letters do not make a minute down: they are counted separately.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hifi_observe.ledger.sketch import Sketch

UP, DOWN, UNKNOWN = "up", "down", "unknown"
DAY_MINUTES, WEEK_MINUTES, MONTH_MINUTES = 1440, 7 * 1440, 30 * 1440


@dataclass(frozen=True, slots=True)
class DestinationLimits:
    """Limits of a destination with an SLO of its own."""

    p95_us: int
    loss: int


@dataclass(frozen=True, slots=True)
class SloLimits:
    """SLO limits of a pipe, and limits of ingest."""

    p95_us: int
    loss: int
    heartbeat_gap_s: float = 10
    """Longest allowed gap in ingest's heartbeat, which is written every second."""
    failed_share: float = 0.01
    """Largest allowed share of 5xx among ingest's answers."""
    destinations: Mapping[str, DestinationLimits] = field(default_factory=dict)
    """Destinations with an SLO of their own; the limits above are for all others."""


@dataclass(frozen=True, slots=True)
class IngestHealth:
    """Health of ingest in a minute, over all its processes."""

    gap_s: float | None = None
    """Longest gap in the heartbeat on any partition; None: unknown, there was never an ack report."""
    failed: int = 0
    """5xx answers: it could not accept."""
    answered: int = 0
    """All answers, without those of paused pipes."""
    paused: int = 0
    """Requests to this pipe that were refused because it is paused."""

    @classmethod
    def of(cls, figures: Mapping[str, Any]) -> "IngestHealth":
        """The health in a merged minute; figures of a later release are skipped."""
        return cls(**{name: figures[name] for name in cls.__dataclass_fields__ if name in figures})

    def worst(self, other_health: "IngestHealth") -> "IngestHealth":
        """Merge two sources of which each may miss a part."""
        gaps = [health.gap_s for health in (self, other_health) if health.gap_s is not None]
        fuller_health = max(self, other_health, key=lambda health: health.answered)
        return IngestHealth(
            max(gaps, default=None),
            fuller_health.failed,
            fuller_health.answered,
            max(self.paused, other_health.paused),
        )

    def within(self, limits: SloLimits) -> bool:
        """Whether it is within the limits."""
        silent = self.gap_s is not None and self.gap_s > limits.heartbeat_gap_s
        return not silent and self.failed <= self.answered * limits.failed_share


@dataclass(slots=True)
class Judgement:
    """The state of a minute: up, down or unknown, with the causes of being down."""

    state: str
    p95_us: int
    causes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class JudgedDeliveries:
    """The deliveries of a minute that have one SLO."""

    lags: Sketch
    """Accepted time to 2xx of every delivery."""
    undelivered: int = 0
    """Events and deliveries without an outcome."""
    lost: int = 0
    """Those of them that are lost."""

    def p95_us(self, age_us: int) -> int:
        """Their p95; those without an outcome count with this age. Microseconds."""
        lags = self.lags.copy()
        lags.add_many(age_us, self.undelivered)
        return round(lags.quantile_us(0.95))


def judge(
    deliveries: JudgedDeliveries,
    age_us: int,
    limits: SloLimits,
    intake: IngestHealth,
    by_destination: Sequence[tuple[JudgedDeliveries, DestinationLimits]] = (),
) -> Judgement:
    """Judge a minute.

    Args:
        deliveries: those with the SLO of the pipe.
        age_us: age of the youngest event of the minute, microseconds.
        limits: of the pipe.
        intake: health of ingest in the minute.
        by_destination: those of each destination with an SLO of its own, and its limits.
    """
    p95_us = deliveries.p95_us(age_us)
    causes = []
    if deliveries.lost > limits.loss or any(
        destination_deliveries.lost > destination_limits.loss
        for destination_deliveries, destination_limits in by_destination
    ):
        causes.append("loss")
    if p95_us > limits.p95_us or any(
        destination_deliveries.p95_us(age_us) > destination_limits.p95_us
        for destination_deliveries, destination_limits in by_destination
    ):
        causes.append("lag")
    if not intake.within(limits):
        causes.append("ingest")
    if causes:
        return Judgement(DOWN, p95_us, causes)
    if (
        intake.gap_s is None
        and not len(deliveries.lags)
        and not any(len(destination_deliveries.lags) for destination_deliveries, _ in by_destination)
    ):
        return Judgement(UNKNOWN, p95_us)
    return Judgement(UP, p95_us)


@dataclass(frozen=True, slots=True)
class Uptime:
    """Minutes of a period by state."""

    up: int
    down: int
    unknown: int

    @property
    def share(self) -> float | None:
        """Share of the known minutes that were up; None: no minute is known."""
        known_minutes = self.up + self.down
        return self.up / known_minutes if known_minutes else None

    @property
    def nines(self) -> float | None:
        """-log10 of the share of down minutes; without any down minute, of half a minute."""
        known_minutes = self.up + self.down
        if not known_minutes:
            return None
        return -math.log10(max(self.down, 0.5) / max(known_minutes, 1)) if self.up else 0.0

    def left(self, target: float, minutes: int) -> float:
        """Error budget left: minutes of a period that may still be down for a target such as 0.999."""
        return (1 - target) * minutes - self.down

    def json(self, target: float, minutes: int) -> dict[str, Any]:
        """For the API."""
        return {
            "up": self.up,
            "down": self.down,
            "unknown": self.unknown,
            "share": self.share,
            "nines": self.nines,
            "budget_minutes": round((1 - target) * minutes, 2),
            "budget_left_minutes": round(self.left(target, minutes), 2),
        }


def uptime(states: Iterable[str]) -> Uptime:
    """Count states."""
    up = down = unknown = 0
    for state in states:
        up += state == UP
        down += state == DOWN
        unknown += state == UNKNOWN
    return Uptime(up, down, unknown)
