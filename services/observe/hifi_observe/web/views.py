"""What the API answers, as JSON-able values made from the store. Pure."""

from collections.abc import Iterable, Mapping
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
"""Parts of the way, in its order; the destination's own time (`expel/…`) comes last."""


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
    store: MinuteStore, pipes: Iterable[str], alarms: Iterable[Alarm], now_minute: int, target: float
) -> list[dict[str, Any]]:
    """One row a pipe."""
    alarms = list(alarms)
    rows = []
    for pipe in pipes:
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


def series(store: MinuteStore, pipe: str, first: int, last: int) -> dict[str, Any]:
    """Columns of the closed minutes of a pipe: counts, end-to-end lags and mean parts of the way in milliseconds."""
    rows = minutes(store, pipe, first, last)
    names = dict.fromkeys(name for row in rows for name, _ in where_time_goes(row))
    parts = [dict(where_time_goes(row)) for row in rows]
    made: dict[str, Any] = {"pipe": pipe, "slo_p95_ms": rows[-1]["slo_p95_us"] / 1000 if rows else None}
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
