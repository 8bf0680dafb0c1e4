"""Build the JSON values of the API's responses from the minute store. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hifi_observe.alarms.alarm import Alarm
from hifi_observe.ledger.id_set import IdSet
from hifi_observe.live import figures
from hifi_observe.minutes.availability import (
    DAY_MINUTES,
    DOWN,
    MONTH_MINUTES,
    UNKNOWN,
    UP,
    WEEK_MINUTES,
    Uptime,
    uptime,
)
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.open_minute import PROVISIONAL, OpenMinute

PERIODS = {"day": DAY_MINUTES, "week": WEEK_MINUTES, "month": MONTH_MINUTES}
STAGES = (
    "ingest.process",
    "normalize.transit",
    "normalize.process",
    "enrich.transit",
    "enrich.process",
    "egest.transit",
    "egest.process",
)
"""Steps of the event path, in order; the response time of the destinations (`expel/…`) comes last."""
HOUR_MINUTES = 60
STALE_S = 30.0
"""Age from which figures are shown as stale, seconds."""


def availability(store: MinuteStore, pipe: str, now_minute: int, target: float) -> dict[str, Any]:
    """Up, down and unknown minutes, nines and error budget of the last day, week and month."""
    states = store.states.get(pipe, {})
    periods = {}
    for name, length in PERIODS.items():
        first_minute = now_minute - length
        recent_uptime = uptime(state for minute, state in states.items() if minute > first_minute)
        oldest_minute = min(states, default=now_minute)
        # The minutes that are no longer kept, in the records of their days.
        earlier_days = [
            record.by_state(first_minute + 1 - day * DAY_MINUTES, oldest_minute - day * DAY_MINUTES)
            for day, record in store.days.get(pipe, {}).items()
        ]
        total = Uptime(
            recent_uptime.up + sum(counts[UP] for counts in earlier_days),
            recent_uptime.down + sum(counts[DOWN] for counts in earlier_days),
            recent_uptime.unknown + sum(counts[UNKNOWN] for counts in earlier_days),
        )
        periods[name] = total.json(target, length)
    return periods


def overview(
    store: MinuteStore, slos_us: Mapping[str, int], alarms: Iterable[Alarm], now_minute: int, target: float
) -> list[dict[str, Any]]:
    """One row for each pipe; `slos_us` has the SLO of each pipe's p95 lag, microseconds."""
    alarms = list(alarms)
    rows = []
    for pipe, slo_p95_us in slos_us.items():
        pipe_figures = figures.of_pipe(pipe, store.live, store.previous_live)
        latest = store.latest(pipe)
        uptimes = availability(store, pipe, now_minute, target)
        kinds = sorted({alarm.kind for alarm in alarms if alarm.pipe == pipe and alarm.silenced is None})
        state = (
            "alarm"
            if kinds
            else "idle"
            if not pipe_figures["rate_in"] and not pipe_figures["rate_out"]
            else "flowing"
        )
        merged_minutes = store.minutes.get(pipe, {})
        rows.append(
            {
                "pipe": pipe,
                "state": state,
                "alarms": kinds,
                "rate_in": pipe_figures["rate_in"],
                "rate_out": pipe_figures["rate_out"],
                "p95_us": pipe_figures["lag"]["p95"] if pipe_figures["lag"]["count"] else None,
                "slo_p95_us": slo_p95_us,
                "states": states(store, pipe, now_minute),
                "lost_hour": _lost_since(store, pipe, now_minute - HOUR_MINUTES),
                "retrying": pipe_figures["retrying"],
                "in_flight": pipe_figures["in_flight"],
                "rate_dead": pipe_figures["rate_dead"],
                "source": pipe_figures["source"],
                "minute": latest["minute"] if latest else None,
                "minute_state": latest["state"] if latest else None,
                "lost": latest["lost"] if latest else None,
                "dead": latest["dead"] if latest else None,
                "nines_day": uptimes["day"]["nines"],
                "share_day": uptimes["day"]["share"],
                "nines_month": uptimes["month"]["nines"],
                "budget_left_minutes": uptimes["month"]["budget_left_minutes"],
                "minutes_known": len(merged_minutes),
            }
        )
    return rows


def states(store: MinuteStore, pipe: str, now_minute: int) -> list[str]:
    """The state of each of the last 60 minutes, oldest first; `none` for a minute without events."""
    closed_states, open_minutes = store.states.get(pipe, {}), store.open_minutes.known(pipe)
    return [
        closed_states.get(minute, PROVISIONAL if minute in open_minutes else "none")
        for minute in range(now_minute - HOUR_MINUTES + 1, now_minute + 1)
    ]


def _lost_since(store: MinuteStore, pipe: str, minute: int) -> int:
    return sum(
        lost_count for loss_minute, lost_count in store.losses.get(pipe, {}).items() if loss_minute > minute
    )


def totals(rows: Sequence[Mapping[str, Any]], alarms: int) -> dict[str, Any]:
    """The totals over all pipes; the p95 lag is that of the pipe with the highest."""
    lags = [row["p95_us"] for row in rows if row["p95_us"] is not None]
    return {
        "rate_in": round(sum(row["rate_in"] for row in rows), 1),
        "rate_out": round(sum(row["rate_out"] for row in rows), 1),
        "p95_us": max(lags, default=None),
        "lost_hour": sum(row["lost_hour"] for row in rows),
        "retrying": sum(row["retrying"] for row in rows),
        "alarms": alarms,
    }


def verdict(
    rows: Sequence[Mapping[str, Any]], alarms: Sequence[Alarm], behind_s: float | None
) -> dict[str, str]:
    """The overall verdict as `headline` and `detail`; `state` is good, bad or unknown."""
    active_alarms = [alarm for alarm in alarms if alarm.silenced is None]
    if behind_s is not None and behind_s >= STALE_S:
        text = f"observe has read nothing new from Kafka for {behind_s:,.0f} s, so the figures below are old."
        return {"state": "unknown", "headline": "The state is unknown.", "detail": text}
    if active_alarms:
        headline = (
            f"{len(active_alarms)} alarms are active." if len(active_alarms) > 1 else "1 alarm is active."
        )
        alarm_names = {
            f"{alarm.kind} ({alarm.pipe or alarm.subject})" if alarm.pipe or alarm.subject else alarm.kind
            for alarm in active_alarms
        }
        return {"state": "bad", "headline": headline, "detail": ", ".join(sorted(alarm_names))}
    if not rows:
        return {"state": "unknown", "headline": "No pipe is declared yet.", "detail": ""}
    pipes_text = "1 pipe" if len(rows) == 1 else f"{len(rows):,} pipes"
    lost_count = sum(row["lost_hour"] for row in rows)
    if lost_count:
        lossy_pipes = ", ".join(sorted(row["pipe"] for row in rows if row["lost_hour"]))
        events_text = "1 event was" if lost_count == 1 else f"{lost_count:,} events were"
        return {
            "state": "bad",
            "headline": f"{events_text} lost in the last hour.",
            "detail": f"Pipes: {lossy_pipes}",
        }
    if behind_s is None:
        return {"state": "unknown", "headline": "No events yet.", "detail": f"{pipes_text} declared."}
    return {
        "state": "good",
        "headline": "Everything is all right.",
        "detail": f"{pipes_text}, no active alarm, no event lost in the last hour.",
    }


def provisional(
    store: MinuteStore, pipe: str, slo_p95_us: int, open_minutes: Iterable[int]
) -> list[dict[str, Any]]:
    """The open minutes of a pipe, oldest first, in the same format as closed minutes.

    `open_minutes`: minutes to list although they have no events.
    """
    rows = {minute: OpenMinute(pipe, minute) for minute in open_minutes}
    rows |= {minute.minute: minute for minute in store.open_minutes.of(pipe)}
    return [rows[minute].json(slo_p95_us) for minute in sorted(rows)]


def minutes(
    store: MinuteStore, pipe: str, first_minute: int, last_minute: int, *, whole_lags: bool = False
) -> list[dict[str, Any]]:
    """The closed minutes of a pipe from `first_minute` to `last_minute`, oldest first, without lists of ids.

    `whole_lags`: with the distribution of lags, where it is kept.
    """
    merged_minutes = store.minutes.get(pipe, {})
    rows = []
    for minute in sorted(number for number in merged_minutes if first_minute <= number <= last_minute):
        merged = store.minute(pipe, minute)
        if merged is not None:
            rows.append(shown(merged) | ({"lag_sketch": merged.get("lag_sketch")} if whole_lags else {}))
    return rows


def fronts(store: MinuteStore, first_minute: int, last_minute: int) -> dict[str, Any]:
    """The front's refusals by minute, from `first_minute` to `last_minute`; unwatched minutes are left out."""
    return {
        str(minute): store.fronts[minute]
        for minute in sorted(store.fronts)
        if first_minute <= minute <= last_minute
    }


def shown(merged: Mapping[str, Any]) -> dict[str, Any]:
    """A merged minute without what only other instances need."""
    hidden = ("lost_ids", "late_ids", "offsets", "lag_sketch", "shares_at_us")
    return {name: value for name, value in merged.items() if name not in hidden}


def lost(merged: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The identity of each lost event of a merged minute; the order is the same on every instance."""
    return [
        {
            "hop": group["hop"],
            "destination": group["destination"],
            "partition": group["partition"],
            "epoch": epoch,
            "sequence": sequence,
        }
        for group in sorted(merged["lost_ids"], key=lambda group: (group["partition"], group["destination"]))
        for epoch, sequence in IdSet.load(group["ids"])
    ]


def mean_step_times(merged: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Mean time of each step of the event path in milliseconds, in path order, destinations last."""
    lags = merged["lags"]
    steps = [(name, lags[name]["mean"] / 1000) for name in STAGES if name in lags]
    expel_steps = [(name, lag["mean"] / 1000) for name, lag in lags.items() if name.startswith("expel/")]
    return [*steps, *sorted(expel_steps)]


def series(
    store: MinuteStore,
    pipe: str,
    first_minute: int,
    last_minute: int,
    slo_p95_us: int,
    open_minutes: Iterable[int],
) -> dict[str, Any]:
    """The minutes of a pipe, closed and open, as columns: counts, end-to-end lags and mean step times in ms."""
    rows = minutes(store, pipe, first_minute, last_minute)
    closed_minutes = {row["minute"] for row in rows}
    rows += [
        row
        for row in provisional(store, pipe, slo_p95_us, open_minutes)
        if row["minute"] not in closed_minutes
    ]
    rows.sort(key=lambda row: int(row["minute"]))
    step_names = dict.fromkeys(name for row in rows for name, _ in mean_step_times(row))
    steps_by_row = [dict(mean_step_times(row)) for row in rows]
    columns: dict[str, Any] = {"pipe": pipe, "slo_p95_ms": slo_p95_us / 1000}
    for name in ("minute", "state", "in", "delivered", "dead", "lost", "duplicates", "waiting"):
        columns[name] = [row[name] for row in rows]
    for name in ("p50", "p95", "p99", "max"):
        columns[name] = [_end_to_end_ms(row, name) for row in rows]
    columns["parts"] = {name: [row_steps.get(name, 0.0) for row_steps in steps_by_row] for name in step_names}
    return columns


def _end_to_end_ms(merged: Mapping[str, Any], name: str) -> float | None:
    """The end-to-end lag (from accepted time) of the slowest destination in a minute, milliseconds."""
    lags = [lag[name] for measure, lag in merged["lags"].items() if measure.startswith("end.accepted/")]
    return max(lags) / 1000 if lags else None
