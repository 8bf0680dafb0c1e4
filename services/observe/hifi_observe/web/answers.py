"""Data for the responses of the API and the pages of the console, read from an instance's state."""

from dataclasses import asdict
from typing import Any, Final

from hifi.control.verdict import Verdict
from hifi.pipe.model import HttpDestination
from hifi.pipe.revision import WHOLE
from hifi.runtime.clock import monotonic_s, now_us
from hifi.runtime.errors import Overloaded, Retryable
from hifi.runtime.http.problem import Problem, retry_later
from hifi_observe.kafka import record_lookup
from hifi_observe.live import figures
from hifi_observe.minutes.availability import SloLimits
from hifi_observe.observatory import Observatory
from hifi_observe.web import views
from hifi_observe.web.request import minute_of

_STEPS: Final = 100
"""Steps of the control plane that are shown."""
_LOOKUP_RETRY_S: Final = 2
"""Time after which a look-up in Kafka that was refused should be tried again, seconds."""


def known_pipe(observatory: Observatory, name: str) -> str:
    """Return the name of a pipe that is declared or has minutes.

    Raises:
        Problem: 404, there is no such pipe.
    """
    if observatory.registry.get(name) is None and name not in observatory.store.minutes:
        raise Problem(404, f"There is no pipe {name!r}; /api/v1/pipes lists them.", title="No such pipe")
    return name


def known_minute(observatory: Observatory, pipe: str, text: str) -> dict[str, Any]:
    """Return a closed minute.

    Raises:
        Problem: 404, the minute is not closed yet or no longer kept; 400, it cannot be parsed.
    """
    merged = observatory.store.minute(pipe, minute_of(text))
    if merged is None:
        raise Problem(
            404, f"The minute {text} of {pipe} is not closed yet, or no longer kept.", title="No such minute"
        )
    return merged


def status_of(observatory: Observatory) -> dict[str, Any]:
    """The partitions that the instance observes, and how far behind Kafka its figures are."""
    live = observatory.store.live
    reached = min((partition["reached"] for partition in live.values()), default=0)
    return {
        "stream": observatory.settings.stream,
        "instance": observatory.settings.instance,
        "partitions": observatory.partitions,
        "observing": sorted(observatory.mine),
        "closed_minute": observatory.store.closed_minute(observatory.partitions),
        "reached_us": reached,
        "behind_s": round((now_us() - reached) / 1e6, 1) if reached else None,
        "kafka_silent_s": round(observatory.silent_s, 1),
        "settle_s": observatory.settings.observe_settle_s,
        "colours": observatory.colours.json(),
        "groups": figures.groups(live),
        "foreign": sum(partition["foreign"] for partition in live.values()),
        "too_late": sum(partition["too_late"] for partition in live.values()),
    }


def pipes_of(observatory: Observatory) -> list[dict[str, Any]]:
    """One row for each pipe."""
    return views.overview(
        observatory.store,
        {
            published.pipe.pipe: round(published.pipe.slo.p95 * 1e6)
            for published in observatory.registry.all()
        },
        observatory.alarms(),
        now_us() // 60_000_000,
        observatory.settings.observe_target,
    )


def overview_of(observatory: Observatory) -> dict[str, Any]:
    """All pipes, their totals, and the overall verdict."""
    status, rows, alarms = status_of(observatory), pipes_of(observatory), observatory.alarms()
    return {
        "verdict": views.verdict(rows, alarms, status["behind_s"]),
        "totals": views.totals(rows, len(alarms)),
        "pipes": rows,
        "status": status,
    }


def slo_p95_us(observatory: Observatory, name: str) -> int:
    """The SLO of a pipe's p95 lag in microseconds; 0 if the pipe was deleted."""
    published = observatory.registry.get(name)
    return round(published.pipe.slo.p95 * 1e6) if published is not None else 0


def open_minutes(observatory: Observatory, name: str, first: int, last: int) -> range:
    """The minutes from `first` to `last` since a pipe was declared that are not closed yet."""
    since = max(observatory.store.closed_minute(observatory.partitions) + 1, observatory.first_minute(name))
    return range(max(first, since), min(last, now_us() // 60_000_000) + 1) if since else range(0)


def recent_minutes(observatory: Observatory, name: str) -> list[dict[str, Any]]:
    """The minutes of a pipe's last hour, newest first; open minutes are provisional."""
    store = observatory.store
    closed = views.minutes(store, name, max(store.minutes.get(name, {}), default=0) - 59, 2**40)
    now = now_us() // 60_000_000
    still_open = open_minutes(observatory, name, now - 59, now)
    provisional = views.provisional(store, name, slo_p95_us(observatory, name), still_open)
    rows = {row["minute"]: row for row in (*provisional, *closed)}
    for row in rows.values():
        hops = row.get("hops", ())
        row["lost_at"] = ", ".join(sorted({hop["hop"] for hop in hops if hop["lost"]}))
    return [rows[minute] for minute in sorted(rows, reverse=True)]


def recent_of(observatory: Observatory, name: str) -> dict[str, Any]:
    """The last five minutes of a pipe as columns, one point per second."""
    observatory.recent.watch(name, monotonic_s())
    slo_us = slo_p95_us(observatory, name)
    return {"pipe": name, "slo_p95_ms": slo_us / 1000 or None} | observatory.recent.columns(name)


def pipe_of(observatory: Observatory, name: str) -> dict[str, Any]:
    """The current state of one pipe."""
    store = observatory.store
    published = observatory.registry.get(name)
    latest = store.latest(name)
    declared = published.pipe.destinations if published else []
    breakers = figures.breakers_of(name, [destination.name for destination in declared], store.live)
    return {
        "pipe": name,
        "seen": any(name in partition["counts"] for partition in store.live.values())
        or bool(latest and latest["in"]),
        "description": published.pipe.description if published else "This pipe was deleted.",
        "slo": {"p95_s": published.pipe.slo.p95, "loss": published.pipe.slo.loss} if published else None,
        "destinations": [
            {
                "name": destination.name,
                "host": destination.url.host
                if isinstance(destination, HttpDestination)
                else destination.kind,
                "breaker": breakers[destination.name],
            }
            for destination in declared
        ],
        "now": figures.of_pipe(name, store.live, store.before),
        "groups": figures.groups(store.live),
        "latest": views.shown(latest) if latest else None,
        "availability": views.availability(
            store, name, now_us() // 60_000_000, observatory.settings.observe_target
        ),
        "alarms": [alarm.json() for alarm in observatory.alarms() if alarm.pipe == name],
    }


async def colours_of(observatory: Observatory, name: str, last: int) -> dict[str, Any]:
    """The newest `last` minutes of a pipe over both colours, with the share of each.

    Raises:
        Problem: 404, the stream has no colours.
    """
    if not observatory.colours.known:
        raise Problem(
            404, "The stream has no colours; `hifi up --colours` starts one that has.", title="No colours"
        )
    now = now_us() // 60_000_000
    limits = observatory.limits_of(name) or SloLimits(2**62, 2**62)
    return await observatory.colours.minutes(name, now - last + 1, now, limits)


def skew_of(observatory: Observatory, name: str) -> dict[str, Any]:
    """The distributions of a pipe's watched fields, now and before; empty until a minute has closed."""
    return {"pipe": name, "fields": [field.json() for field in observatory.skews.of(name)]}


async def lost_of(
    observatory: Observatory, merged: dict[str, Any], limit: int, *, resolved: bool
) -> dict[str, Any]:
    """List the lost events of a minute, at most `limit`; `resolved` adds their `ce_id` where Kafka still has it.

    Raises:
        Problem: 503, Kafka does not answer, or too many look-ups are running.
    """
    events = views.lost(merged)[:limit]
    hidden = observatory.hides_id(merged["pipe"])
    if resolved and events and not hidden:
        try:
            with observatory.lookups.take():
                ce_ids = await record_lookup.ce_ids(observatory.settings, observatory.topics, merged, events)
        except Overloaded as error:
            raise retry_later(f"{error}; wait until one has ended.", _LOOKUP_RETRY_S) from None
        except Retryable as error:
            raise Problem(503, str(error), title="Kafka does not answer") from None
        for lost_event in events:
            lost_event["ce_id"] = ce_ids.get((lost_event["epoch"], lost_event["sequence"]))
    return {
        "pipe": merged["pipe"],
        "minute": merged["minute"],
        "count": merged["lost"],
        "hidden": hidden,
        "lost": events,
    }


async def dead_of(
    observatory: Observatory, name: str, limit: int, conditions: dict[str, str]
) -> list[dict[str, Any]]:
    """List the newest dead letters of a pipe that match the filter `conditions`, at most `limit`.

    Raises:
        Problem: 503, Kafka does not answer, or too many look-ups are running.
    """
    published = observatory.registry.get(name)
    masks = published is None or bool(published.pipe.normalize.mask)
    try:
        with observatory.lookups.take():
            return await record_lookup.dead_letters(
                observatory.settings,
                observatory.topics,
                observatory.partitions,
                name,
                limit=limit,
                masks=masks,
                hides_id=observatory.hides_id(name),
                wanted=conditions,
            )
    except Overloaded as error:
        raise retry_later(f"{error}; wait until one has ended.", _LOOKUP_RETRY_S) from None
    except Retryable as error:
        raise Problem(503, str(error), title="Kafka does not answer") from None


def alarms_of(observatory: Observatory) -> dict[str, Any]:
    """Active alarms, past alarms (newest first) and silences. `told`: the ways in which a pipe's owner was told."""
    alarms = [{"told": []} | body for body in observatory.notifier.history]
    return {
        "active": [body for body in alarms if body["ended_us"] is None],
        "past": [body for body in reversed(alarms) if body["ended_us"] is not None],
        "silences": [
            {name: getattr(silence, name) for name in silence.__dataclass_fields__}
            for silence in observatory.notifier.alarms.silences.values()
        ],
    }


def control_of(observatory: Observatory) -> dict[str, Any]:
    """The verdicts, the rollouts that run, and the steps of the control plane.

    Returns:
        `verdicts`; `rollouts`: a row for each revision of a pipe with a rollout, with `share` in percent; `actions`:
        the newest steps, None without a control plane.
    """
    verdicts = observatory.verdicts()
    actions = observatory.actions()
    return {
        "verdicts": [verdict.json() for verdict in verdicts],
        "rollouts": [row for verdict in verdicts for row in _revisions(observatory, verdict)],
        "actions": None if actions is None else [asdict(action) for action in actions[:_STEPS]],
    }


def _revisions(observatory: Observatory, verdict: Verdict) -> list[dict[str, Any]]:
    pipe = verdict.scope.removeprefix("pipe/")
    published = observatory.registry.get(pipe)
    if verdict.rollout is None or published is None or published.rollout is None:
        return []
    following, share = published.rollout.next.number, published.rollout.share * 100 / WHOLE
    return [
        {
            "pipe": pipe,
            "revision": revision,
            "next": revision == following,
            "share": share if revision == following else 100 - share,
            "figures": asdict(verdict.rollout.of(revision)),
        }
        for revision in (published.number, following)
    ]
