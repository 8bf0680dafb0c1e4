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
        first = now_minute - length
        recent = uptime(state for minute, state in states.items() if minute > first)
        oldest = min(states, default=now_minute)
        # Days whose minutes are no longer kept: whole days before the oldest known minute.
        earlier_days = [
            record.by_state()
            for day, record in store.days.get(pipe, {}).items()
            if first <= day * DAY_MINUTES and (day + 1) * DAY_MINUTES <= oldest
        ]
        total = Uptime(
            recent.up + sum(counts[UP] for counts in earlier_days),
            recent.down + sum(counts[DOWN] for counts in earlier_days),
            recent.unknown + sum(counts[UNKNOWN] for counts in earlier_days),
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
        now = figures.of_pipe(pipe, store.live, store.previous_live)
        latest = store.latest(pipe)
        uptimes = availability(store, pipe, now_minute, target)
        kinds = sorted({alarm.kind for alarm in alarms if alarm.pipe == pipe and alarm.silenced is None})
        state = "alarm" if kinds else "idle" if not now["rate_in"] and not now["rate_out"] else "flowing"
        recent = store.minutes.get(pipe, {})
        rows.append(
            {
                "pipe": pipe,
                "state": state,
                "alarms": kinds,
                "rate_in": now["rate_in"],
                "rate_out": now["rate_out"],
                "p95_us": now["lag"]["p95"] if now["lag"]["count"] else None,
                "slo_p95_us": slo_p95_us,
                "states": states(store, pipe, now_minute),
                "lost_hour": _lost_since(store, pipe, now_minute - HOUR_MINUTES),
                "retrying": now["retrying"],
                "in_flight": now["in_flight"],
                "rate_dead": now["rate_dead"],
                "source": now["source"],
                "minute": latest["minute"] if latest else None,
                "minute_state": latest["state"] if latest else None,
                "lost": latest["lost"] if latest else None,
                "dead": latest["dead"] if latest else None,
                "nines_day": uptimes["day"]["nines"],
                "share_day": uptimes["day"]["share"],
                "nines_month": uptimes["month"]["nines"],
                "budget_left_minutes": uptimes["month"]["budget_left_minutes"],
                "minutes_known": len(recent),
            }
        )
    return rows


def states(store: MinuteStore, pipe: str, now_minute: int) -> list[str]:
    """The state of each of the last 60 minutes, oldest first; `none` for a minute without events."""
    closed, still_open = store.states.get(pipe, {}), store.open_minutes.known(pipe)
    return [
        closed.get(minute, PROVISIONAL if minute in still_open else "none")
        for minute in range(now_minute - HOUR_MINUTES + 1, now_minute + 1)
    ]


def _lost_since(store: MinuteStore, pipe: str, minute: int) -> int:
    return sum(lost for at, lost in store.losses.get(pipe, {}).items() if at > minute)


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
    active = [alarm for alarm in alarms if alarm.silenced is None]
    if behind_s is not None and behind_s >= STALE_S:
        text = f"observe has read nothing new from Kafka for {behind_s:,.0f} s, so the figures below are old."
        return {"state": "unknown", "headline": "The state is unknown.", "detail": text}
    if active:
        headline = f"{len(active)} alarms are active." if len(active) > 1 else "1 alarm is active."
        names = {
            f"{alarm.kind} ({alarm.pipe or alarm.subject})" if alarm.pipe or alarm.subject else alarm.kind
            for alarm in active
        }
        return {"state": "bad", "headline": headline, "detail": ", ".join(sorted(names))}
    if not rows:
        return {"state": "unknown", "headline": "No pipe is declared yet.", "detail": ""}
    pipes = "1 pipe" if len(rows) == 1 else f"{len(rows):,} pipes"
    lost = sum(row["lost_hour"] for row in rows)
    if lost:
        lossy = ", ".join(sorted(row["pipe"] for row in rows if row["lost_hour"]))
        events = "1 event was" if lost == 1 else f"{lost:,} events were"
        return {"state": "bad", "headline": f"{events} lost in the last hour.", "detail": f"Pipes: {lossy}"}
    if behind_s is None:
        return {"state": "unknown", "headline": "No events yet.", "detail": f"{pipes} declared."}
    return {
        "state": "good",
        "headline": "Everything is all right.",
        "detail": f"{pipes}, no active alarm, no event lost in the last hour.",
    }


def provisional(
    store: MinuteStore, pipe: str, slo_p95_us: int, still_open: Iterable[int]
) -> list[dict[str, Any]]:
    """The open minutes of a pipe, oldest first, in the same format as closed minutes.

    `still_open`: minutes to list although they have no events.
    """
    rows = {minute: OpenMinute(pipe, minute) for minute in still_open}
    rows |= {minute.minute: minute for minute in store.open_minutes.of(pipe)}
    return [rows[minute].json(slo_p95_us) for minute in sorted(rows)]


def minutes(
    store: MinuteStore, pipe: str, first: int, last: int, *, whole_lags: bool = False
) -> list[dict[str, Any]]:
    """The closed minutes of a pipe from `first` to `last`, oldest first, without lists of ids.

    `whole_lags`: with the distribution of lags, where it is kept.
    """
    merged_minutes = store.minutes.get(pipe, {})
    rows = []
    for minute in sorted(number for number in merged_minutes if first <= number <= last):
        merged = store.minute(pipe, minute)
        if merged is not None:
            rows.append(shown(merged) | ({"lag_sketch": merged.get("lag_sketch")} if whole_lags else {}))
    return rows


def fronts(store: MinuteStore, first: int, last: int) -> dict[str, Any]:
    """What the front of two colours refused, by minute from `first` to `last`; minutes not watched are left out."""
    return {str(minute): store.fronts[minute] for minute in sorted(store.fronts) if first <= minute <= last}


def shown(merged: Mapping[str, Any]) -> dict[str, Any]:
    """A merged minute without what only other instances need."""
    hidden = ("lost_ids", "late_ids", "offsets", "lag_sketch")
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
    expel = [(name, lag["mean"] / 1000) for name, lag in lags.items() if name.startswith("expel/")]
    return [*steps, *sorted(expel)]


def series(
    store: MinuteStore, pipe: str, first: int, last: int, slo_p95_us: int, still_open: Iterable[int]
) -> dict[str, Any]:
    """The minutes of a pipe, closed and open, as columns: counts, end-to-end lags and mean step times in ms."""
    rows = minutes(store, pipe, first, last)
    closed = {row["minute"] for row in rows}
    rows += [row for row in provisional(store, pipe, slo_p95_us, still_open) if row["minute"] not in closed]
    rows.sort(key=lambda row: int(row["minute"]))
    names = dict.fromkeys(name for row in rows for name, _ in mean_step_times(row))
    steps = [dict(mean_step_times(row)) for row in rows]
    columns: dict[str, Any] = {"pipe": pipe, "slo_p95_ms": slo_p95_us / 1000}
    for name in ("minute", "state", "in", "delivered", "dead", "lost", "duplicates", "waiting"):
        columns[name] = [row[name] for row in rows]
    for name in ("p50", "p95", "p99", "max"):
        columns[name] = [_end_to_end_ms(row, name) for row in rows]
    columns["parts"] = {name: [row_steps.get(name, 0.0) for row_steps in steps] for name in names}
    return columns


def _end_to_end_ms(merged: Mapping[str, Any], name: str) -> float | None:
    """The end-to-end lag (from accepted time) of the slowest destination in a minute, milliseconds."""
    lags = [lag[name] for measure, lag in merged["lags"].items() if measure.startswith("end.accepted/")]
    return max(lags) / 1000 if lags else None
