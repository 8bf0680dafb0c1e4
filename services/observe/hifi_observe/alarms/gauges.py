"""Set the gauges from the newest closed minutes, the momentary figures and the active alarms."""

from collections.abc import Iterable, Mapping
from typing import Final

from hifi_observe import metrics
from hifi_observe.alarms.alarm import KINDS, Alarm
from hifi_observe.live import figures
from hifi_observe.minutes.availability import SloLimits
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.steps.partition_account import of_step

_STATES: Final = ("in", "out", "in_flight", "waiting", "parked", "lost", "duplicates", "dead")


def update_gauges(store: MinuteStore, limits: Mapping[str, SloLimits], active: Iterable[Alarm]) -> None:
    """Set all gauges from what is known now."""
    for gauge in (metrics.CLOSED, metrics.EVENTS, metrics.UP, metrics.LAG, metrics.RATE, metrics.STEP_EVENTS):
        gauge.clear()
    for pipe in limits:
        pipe_figures = figures.of_pipe(pipe, store.live, store.previous_live)
        for direction in ("in", "out", "dead"):
            metrics.RATE.labels(pipe, direction).set(pipe_figures[f"rate_{direction}"])
        _set_minute(pipe, store)
        _set_step(pipe, store)
    for group in figures.groups(store.live):
        labels = group["topic"], group["service"]
        metrics.BACKLOG_RECORDS.labels(*labels).set(group["records"])
        metrics.BACKLOG_UNCOMMITTED.labels(*labels).set(group["uncommitted"])
        metrics.BACKLOG_AGE.labels(*labels).set(group["seconds"])
    kinds = [alarm.kind for alarm in active]
    for kind in KINDS:
        metrics.ALARMS.labels(kind).set(kinds.count(kind))


def _set_step(pipe: str, store: MinuteStore) -> None:
    step = of_step(pipe, store.live.values())
    if step is None:
        return
    missing_count = sum(abs(finding["events"]) for finding in step["findings"])
    for state, count in (
        ("proven", step["proven"]),
        ("unproven", step["unproven"]),
        ("missing", missing_count),
    ):
        metrics.STEP_EVENTS.labels(pipe, state).set(count)


def _set_minute(pipe: str, store: MinuteStore) -> None:
    latest = store.latest(pipe)
    if latest is None:
        return
    metrics.CLOSED.labels(pipe).set(latest["minute"] * 60)
    metrics.UP.labels(pipe).set({"up": 1, "down": 0}.get(latest["state"], -1))
    for hop in latest["hops"]:
        for state in _STATES:
            metrics.EVENTS.labels(pipe, hop["hop"], hop["destination"], state).set(hop[state])
    for measure, lag in latest["lags"].items():
        if measure.startswith(("end.", "expel/")) or measure.endswith(
            (".process", ".transit", ".out.accepted")
        ):
            for quantile in ("p50", "p95", "p99"):
                metrics.LAG.labels(pipe, measure, quantile).set(lag[quantile] / 1e6)
