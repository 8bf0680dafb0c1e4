"""Observe's metrics. Labels are bounded by pipes x destinations x hops; never ids.

They are made from the newest closed minutes and the momentary figures, so every instance tells the whole stream's:
take them from one instance, or with `max`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import Counter, Gauge

from hifi_observe import figures
from hifi_observe.alarm import KINDS, Alarm
from hifi_observe.availability import Limits
from hifi_observe.store import Store

CELLS: Final = Gauge("hifi_observe_cells", "Pipe-minutes held in memory.", ["partition"])
CLOSED: Final = Gauge("hifi_minute_closed_timestamp_seconds", "Start of the newest closed minute.", ["pipe"])
EVENTS: Final = Gauge(
    "hifi_minute_events", "Of the newest closed minute, by state.", ["pipe", "hop", "destination", "state"]
)
UP: Final = Gauge("hifi_minute_up", "1: the newest closed minute was up, 0: down, -1: unknown.", ["pipe"])
LAG: Final = Gauge(
    "hifi_minute_lag_seconds", "Lags of the newest closed minute.", ["pipe", "measure", "quantile"]
)
RATE: Final = Gauge(
    "hifi_events_per_second", "Events now, by direction (in, out, dead).", ["pipe", "direction"]
)
GROUP_RECORDS: Final = Gauge(
    "hifi_group_lag_records", "Records that a service has not committed past.", ["topic", "service"]
)
GROUP_SECONDS: Final = Gauge("hifi_group_lag_seconds", "Age of the first of them.", ["topic", "service"])
ALARMS: Final = Gauge("hifi_alarms_active", "Alarms that have not ended.", ["kind"])
SPANS: Final = Counter("hifi_observe_spans_total", "Spans of sampled events: exported, dropped.", ["outcome"])
TRACES_CAPPED: Final = Counter("hifi_observe_traces_capped_total", "Sampled events without spans: too many.")
_STATES: Final = ("in", "out", "in_flight", "waiting", "lost", "duplicates", "dead")


def show(store: Store, limits: Mapping[str, Limits], active: Iterable[Alarm]) -> None:
    """Set all gauges from what is known now."""
    for one in (CLOSED, EVENTS, UP, LAG, RATE):
        one.clear()
    for pipe in limits:
        now = figures.of_pipe(pipe, store.live, store.before)
        for direction in ("in", "out", "dead"):
            RATE.labels(pipe, direction).set(now[f"rate_{direction}"])
        _minute(pipe, store)
    for group in figures.groups(store.live):
        GROUP_RECORDS.labels(group["topic"], group["service"]).set(group["records"])
        GROUP_SECONDS.labels(group["topic"], group["service"]).set(group["seconds"])
    kinds = [one.kind for one in active]
    for kind in KINDS:
        ALARMS.labels(kind).set(kinds.count(kind))


def _minute(pipe: str, store: Store) -> None:
    latest = store.latest(pipe)
    if latest is None:
        return
    CLOSED.labels(pipe).set(latest["minute"] * 60)
    UP.labels(pipe).set({"up": 1, "down": 0}.get(latest["state"], -1))
    for hop in latest["hops"]:
        for state in _STATES:
            EVENTS.labels(pipe, hop["hop"], hop["destination"], state).set(hop[state])
    for measure, lag in latest["lags"].items():
        if measure.startswith(("end.", "expel/")) or measure.endswith(
            (".process", ".transit", ".out.accepted")
        ):
            for name in ("p50", "p95", "p99"):
                LAG.labels(pipe, measure, name).set(lag[name] / 1e6)
