"""What the API answers, as JSON-able values made from the store. Pure."""

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
from hifi_observe.minutes.open_minute import PROVISIONAL

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
"""Steps of the event path, in order; the destination's own time (`expel/…`) comes last."""
HOUR_MINUTES = 60
STALE_S = 30.0
"""Figures older than this are shown as old, seconds."""


def availability(store: MinuteStore, pipe: str, now_minute: int, target: float) -> dict[str, Any]:
    """Up, down and unknown minutes, nines and the error budget of each period that ends now."""
    states = store.states.get(pipe, {})
    made = {}
    for name, length in PERIODS.items():
        first = now_minute - length
        recent = uptime(state for minute, state in states.items() if minute > first)
        oldest = min(states, default=now_minute)
        # Days whose minutes were let go: whole days before the oldest minute that is still known.
        old = [
            one
            for day, one in store.days.get(pipe, {}).items()
            if first <= day * DAY_MINUTES and (day + 1) * DAY_MINUTES <= oldest
        ]
        whole = Uptime(
            recent.up + sum(one[UP] for one in old),
            recent.down + sum(one[DOWN] for one in old),
            recent.unknown + sum(one[UNKNOWN] for one in old),
        )
        made[name] = whole.json(target, length)
    return made


def overview(
    store: MinuteStore, slos_us: Mapping[str, int], alarms: Iterable[Alarm], now_minute: int, target: float
) -> list[dict[str, Any]]:
    """One row for each pipe; `slos_us`: pipe to the p95 lag that it promises, microseconds."""
    alarms = list(alarms)
    rows = []
    for pipe, slo_p95_us in slos_us.items():
        now = figures.of_pipe(pipe, store.live, store.before)
        latest = store.latest(pipe)
        up = availability(store, pipe, now_minute, target)
        wrong = sorted({one.kind for one in alarms if one.pipe == pipe and one.silenced is None})
        state = "alarm" if wrong else "idle" if not now["rate_in"] and not now["rate_out"] else "flowing"
        recent = store.minutes.get(pipe, {})
        rows.append(
            {
                "pipe": pipe,
                "state": state,
                "alarms": wrong,
                "rate_in": now["rate_in"],
                "rate_out": now["rate_out"],
                "p95_us": now["lag"]["p95"] if now["lag"]["count"] else None,
                "slo_p95_us": slo_p95_us,
                "states": states(store, pipe, now_minute),
                "lost_hour": _lost_since(store, pipe, now_minute - HOUR_MINUTES),
                "retrying": now["retrying"],
                "in_flight": now["in_flight"],
                "rate_dead": now["rate_dead"],
                "minute": latest["minute"] if latest else None,
                "minute_state": latest["state"] if latest else None,
                "lost": latest["lost"] if latest else None,
                "dead": latest["dead"] if latest else None,
                "nines_day": up["day"]["nines"],
                "share_day": up["day"]["share"],
                "nines_month": up["month"]["nines"],
                "budget_left_minutes": up["month"]["budget_left_minutes"],
                "minutes_known": len(recent),
            }
        )
    return rows


def states(store: MinuteStore, pipe: str, now_minute: int) -> list[str]:
    """The state of each of the last 60 minutes, oldest first; `none`: there is nothing to judge."""
    known, still_open = store.states.get(pipe, {}), store.open_minutes.known(pipe)
    return [
        known.get(minute, PROVISIONAL if minute in still_open else "none")
        for minute in range(now_minute - HOUR_MINUTES + 1, now_minute + 1)
    ]


def _lost_since(store: MinuteStore, pipe: str, minute: int) -> int:
    return sum(lost for at, lost in store.losses.get(pipe, {}).items() if at > minute)


def totals(rows: Sequence[Mapping[str, Any]], alarms: int) -> dict[str, Any]:
    """The overview's figures over all pipes; the p95 lag is the highest of any pipe."""
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
    """Whether everything is all right, in one sentence: `state` is good, bad or unknown."""
    loud = [alarm for alarm in alarms if alarm.silenced is None]
    if behind_s is not None and behind_s >= STALE_S:
        text = f"observe has read nothing new from Kafka for {behind_s:,.0f} s, so the figures below are old."
        return {"state": "unknown", "headline": "The state is unknown.", "detail": text}
    if loud:
        many = f"{len(loud)} alarms are active." if len(loud) > 1 else "1 alarm is active."
        named = [
            f"{one.kind} ({one.pipe or one.subject})" if one.pipe or one.subject else one.kind for one in loud
        ]
        return {"state": "bad", "headline": many, "detail": ", ".join(sorted(set(named)))}
    if not rows:
        return {"state": "unknown", "headline": "No pipe is declared yet.", "detail": ""}
    pipes = "1 pipe" if len(rows) == 1 else f"{len(rows):,} pipes"
    lost = sum(row["lost_hour"] for row in rows)
    if lost:
        where = ", ".join(sorted(row["pipe"] for row in rows if row["lost_hour"]))
        events = "1 event was" if lost == 1 else f"{lost:,} events were"
        return {"state": "bad", "headline": f"{events} lost in the last hour.", "detail": f"Pipes: {where}"}
    if behind_s is None:
        return {"state": "unknown", "headline": "No events yet.", "detail": f"{pipes} declared."}
    return {
        "state": "good",
        "headline": "Everything is all right.",
        "detail": f"{pipes}, no active alarm, no event lost in the last hour.",
    }


def provisional(store: MinuteStore, pipe: str, slo_p95_us: int) -> list[dict[str, Any]]:
    """The minutes of a pipe that are still open, oldest first, in the form of closed ones."""
    return [one.json(slo_p95_us) for one in store.open_minutes.of(pipe)]


def minutes(store: MinuteStore, pipe: str, first: int, last: int) -> list[dict[str, Any]]:
    """Merged minutes of a pipe, oldest first, without lists of ids."""
    known = store.minutes.get(pipe, {})
    made = []
    for minute in sorted(one for one in known if first <= one <= last):
        merged = store.minute(pipe, minute)
        if merged is not None:
            made.append(
                {name: value for name, value in merged.items() if name not in ("lost_ids", "offsets")}
            )
    return made


def lost(merged: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The lost identities of a merged minute, one by one, in the same order whoever merged it."""
    return [
        {
            "hop": one["hop"],
            "destination": one["destination"],
            "partition": one["partition"],
            "epoch": epoch,
            "sequence": sequence,
        }
        for one in sorted(merged["lost_ids"], key=lambda one: (one["partition"], one["destination"]))
        for epoch, sequence in IdSet.load(one["ids"])
    ]


def where_time_goes(merged: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Mean milliseconds of each part of the way, in its order."""
    lags = merged["lags"]
    parts = [(name, lags[name]["mean"] / 1000) for name in STAGES if name in lags]
    expel = [(name, one["mean"] / 1000) for name, one in lags.items() if name.startswith("expel/")]
    return [*parts, *sorted(expel)]


def series(store: MinuteStore, pipe: str, first: int, last: int, slo_p95_us: int) -> dict[str, Any]:
    """Columns of the minutes of a pipe, closed and open: counts, end-to-end lags and mean steps in milliseconds."""
    rows = minutes(store, pipe, first, last)
    closed = {row["minute"] for row in rows}
    rows += [row for row in provisional(store, pipe, slo_p95_us) if row["minute"] not in closed]
    rows.sort(key=lambda row: int(row["minute"]))
    names = dict.fromkeys(name for row in rows for name, _ in where_time_goes(row))
    parts = [dict(where_time_goes(row)) for row in rows]
    made: dict[str, Any] = {"pipe": pipe, "slo_p95_ms": slo_p95_us / 1000}
    for name in ("minute", "state", "in", "delivered", "dead", "lost", "duplicates", "waiting"):
        made[name] = [row[name] for row in rows]
    for name in ("p50", "p95", "p99", "max"):
        made[name] = [_end(row, name) for row in rows]
    made["parts"] = {name: [part.get(name, 0.0) for part in parts] for name in names}
    return made


def _end(merged: Mapping[str, Any], name: str) -> float | None:
    """The worst destination's end-to-end lag of a minute from accepted time, milliseconds."""
    ends = [one[name] for measure, one in merged["lags"].items() if measure.startswith("end.accepted/")]
    return max(ends) / 1000 if ends else None
