"""Pipes as they are now: rates, lags, destinations, availability and watched fields."""

from collections.abc import Callable
from typing import Any

from typing_extensions import TypedDict

from hifi.pipe.endpoints import destination_endpoints
from hifi.pipe.model import HTTP, Destination
from hifi.pipe.sources.collected import CollectedSource
from hifi.runtime.clock import now_us
from hifi.runtime.egress import EgressKind
from hifi.runtime.http.problem import Problem
from hifi_observe.alarms.alarm import AlarmJson
from hifi_observe.live.breaker_state import BreakerView
from hifi_observe.live.live_figures import LiveFigures
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.pipes import ObservedPipes
from hifi_observe.skew.comparison import FieldSkewJson
from hifi_observe.skew.skew_tracker import SkewTracker
from hifi_observe.steps.partition_account import StepNow, of_step
from hifi_observe.web import views
from hifi_observe.web.alarm_answers import AlarmAnswers
from hifi_observe.web.status_answers import StatusAnswers


class PipeSlo(TypedDict):
    """The SLO of a pipe."""

    p95_s: float
    loss: int


class DestinationNow(TypedDict):
    """A destination of a pipe."""

    name: str
    host: str
    """Of an HTTP destination; of others, their kind."""
    breaker: BreakerView


class PipeNow(TypedDict):
    """The current state of one pipe."""

    pipe: str
    seen: bool
    source: str
    """Kind of its source; `http`: producers send events to ingest."""
    description: str
    slo: PipeSlo | None
    destinations: list[DestinationNow]
    now: dict[str, Any]
    groups: list[dict[str, Any]]
    latest: dict[str, Any] | None
    availability: dict[str, Any]
    alarms: list[AlarmJson]
    step: StepNow | None
    """Counts of the events that it reads; None: it is no step, or has read nothing yet."""


class WatchedFields(TypedDict):
    """The distributions of a pipe's watched fields, now and before; empty until a minute has closed."""

    pipe: str
    fields: list[FieldSkewJson]


class Overview(TypedDict):
    """All pipes, their totals, and the overall verdict."""

    verdict: dict[str, str]
    totals: dict[str, Any]
    pipes: list[dict[str, Any]]
    status: dict[str, Any]


class PipeAnswers:
    """Answers about pipes.

    Args:
        store: has the minutes.
        pipes: as declared.
        live: momentary figures.
        skews: comparisons of watched fields.
        alarms: active alarms.
        status: of the instance.
        target: share of minutes that should be up.
    """

    def __init__(
        self,
        store: MinuteStore,
        pipes: ObservedPipes,
        live: LiveFigures,
        skews: SkewTracker,
        alarms: AlarmAnswers,
        status: StatusAnswers,
        target: float,
    ) -> None:
        self._store = store
        self._pipes = pipes
        self._live = live
        self._skews = skews
        self._alarms = alarms
        self._status = status
        self._target = target

    def require(self, name: str) -> str:
        """Return the name of a pipe that is declared or has minutes.

        Raises:
            Problem: 404, there is no such pipe.
        """
        if not self._pipes.exists(name):
            raise Problem(404, f"There is no pipe {name!r}; /api/v1/pipes lists them.", title="No such pipe")
        return name

    def overview(self, may_see: Callable[[str], bool]) -> Overview:
        """The pipes that somebody sees, their totals, and the overall verdict."""
        status = self._status.status()
        alarms = [alarm for alarm in self._alarms.active() if not alarm.pipe or may_see(alarm.pipe)]
        slos_us = {name: limits.p95_us for name, limits in self._pipes.limits().items()}
        rows = [
            row
            for row in views.overview(self._store, slos_us, alarms, now_us() // 60_000_000, self._target)
            if may_see(row["pipe"])
        ]
        return {
            "verdict": views.verdict(rows, alarms, status["behind_s"]),
            "totals": views.totals(rows, len(alarms)),
            "pipes": rows,
            "status": status,
        }

    def pipe(self, name: str) -> PipeNow:
        """The current state of one pipe."""
        pipe, latest = self._pipes.get(name), self._store.latest(name)
        destinations = pipe.destinations if pipe else []
        breakers = self._live.breakers(name, [destination.name for destination in destinations])
        return {
            "pipe": name,
            "seen": self._live.has_events(name) or bool(latest and latest["in"]),
            "source": pipe.source.kind if pipe and isinstance(pipe.source, CollectedSource) else HTTP,
            "description": pipe.description if pipe else "This pipe was deleted.",
            "slo": {"p95_s": pipe.slo.p95, "loss": pipe.slo.loss} if pipe else None,
            "destinations": [
                {
                    "name": destination.name,
                    "host": _host(destination),
                    "breaker": breakers[destination.name],
                }
                for destination in destinations
            ],
            "now": self._live.of_pipe(name),
            "groups": self._live.backlogs(),
            "latest": views.shown(latest) if latest else None,
            "availability": views.availability(self._store, name, now_us() // 60_000_000, self._target),
            "alarms": [alarm.json() for alarm in self._alarms.active() if alarm.pipe == name],
            "step": of_step(name, self._store.live.values()),
        }

    def recent(self, name: str) -> dict[str, Any]:
        """The last five minutes of a pipe as columns, one point per second."""
        slo_us = self._pipes.slo_p95_us(name)
        return {"pipe": name, "slo_p95_ms": slo_us / 1000 or None} | self._live.recent(name)

    def watched_fields(self, name: str) -> WatchedFields:
        """The watched fields of a pipe."""
        return {"pipe": name, "fields": [field.json() for field in self._skews.of(name)]}


def _host(destination: Destination) -> str:
    """The host of an HTTP destination; else its kind."""
    if destination.kind != HTTP:
        return destination.kind
    hosts = (host for _, kind, host, _ in destination_endpoints(destination) if kind is EgressKind.HTTP)
    return next(hosts, "")
