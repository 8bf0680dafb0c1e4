"""Momentary figures: made from a book by the instance that holds it, added up from all partitions by everyone. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from hifi_observe.ledger import breaker_reports, stage
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.ledger.recent_activity import FailureStreak
from hifi_observe.ledger.sketch import Sketch
from hifi_observe.minutes.merged_minute import summary

_STREAK_FIELDS: Final = len(fields(FailureStreak))


def of_ledger(ledger: PartitionLedger, now_us: int, lags: Mapping[str, Sketch]) -> dict[str, Any]:
    """The figures of a partition number as JSON."""
    waiting: Counter[tuple[str, str, str]] = Counter()
    for topic, backlog in ledger.backlogs.items():
        for (pipe, destination), number in backlog.waiting.items():
            if number > 0:
                waiting[pipe, topic, destination] += number
    return {
        "at": now_us,
        "reached": ledger.reached_us,
        "newest": ledger.live.newest_ms,
        "counts": {pipe: dict(counts) for pipe, counts in ledger.live.counts.items()},
        "lags": {pipe: sketch.dump() for pipe, sketch in lags.items() if len(sketch)},
        "waiting": [[*key, number] for key, number in sorted(waiting.items())],
        "backlogs": {
            topic: [len(backlog), round(backlog.waiting_s(now_us // 1000), 3), backlog.committed]
            for topic, backlog in sorted(ledger.backlogs.items())
        },
        "streaks": [
            [pipe, destination, *one.json()]
            for (pipe, destination), one in sorted(ledger.live.streaks.items())
        ],
        "successes": [[*key, last_ms] for key, last_ms in sorted(ledger.live.successes.items())],
        "breakers": [[*key, one.json()] for key, one in sorted(ledger.live.breakers.items())],
        "skipped": dict(ledger.live.skipped),
        "skipped_at": ledger.live.skipped_us,
        "ack_reported": ledger.ingest.last_ms,
        "foreign": sum(ledger.foreign.values()),
        "too_late": sum(ledger.too_late.values()),
        "pipe_minutes": len(ledger.pipe_minutes),
    }


class LagWindow:
    """The lags of the last few looks, so that a momentary p95 rests on more than one of them."""

    def __init__(self, looks: int) -> None:
        self._looks = looks
        self._kept: list[dict[str, Sketch]] = []

    def put(self, taken: dict[str, Sketch]) -> dict[str, Sketch]:
        """Add one look; returns the lags of the last few together."""
        self._kept = [*self._kept, taken][-self._looks :]
        merged: defaultdict[str, Sketch] = defaultdict(Sketch)
        for one in self._kept:
            for pipe, sketch in one.items():
                merged[pipe].merge(sketch)
        return dict(merged)


def of_pipe(
    pipe: str, live: Mapping[int, dict[str, Any]], before: Mapping[int, dict[str, Any]]
) -> dict[str, Any]:
    """A pipe's figures over all partition numbers: rates per second, momentary lags, what waits where."""
    lags = Sketch()
    rates: defaultdict[str, float] = defaultdict(float)
    waiting: Counter[tuple[str, str]] = Counter()
    streaks = []
    successes: defaultdict[str, int] = defaultdict(int)
    for partition, now in live.items():
        if pipe in now["lags"]:
            lags.merge(Sketch.load(now["lags"][pipe]))
        old = before.get(partition)
        if old is not None and now["at"] > old["at"]:
            seconds = (now["at"] - old["at"]) / 1e6
            for kind, count in now["counts"].get(pipe, {}).items():
                rates[kind] += max(0, count - old["counts"].get(pipe, {}).get(kind, 0)) / seconds
        for name, topic, destination, number in now["waiting"]:
            if name == pipe:
                waiting[topic, destination] += number
        streaks += [one[1:] for one in now["streaks"] if one[0] == pipe]
        for name, destination, last_ms in now.get("successes", ()):
            if name == pipe:
                successes[destination] = max(successes[destination], last_ms)
    dead = rates["dead-event"] + rates["dead-delivery"]
    retrying = sum(number for (topic, _), number in waiting.items() if stage.kind_of(topic) == stage.RETRY_IN)
    return {
        "rate_in": round(rates[stage.RAW], 1),
        "rate_out": round(rates["delivered"], 1),
        "rate_dead": round(dead, 2),
        "lag": summary(lags),
        "retrying": retrying,
        "in_flight": sum(waiting.values()) - retrying,
        "waiting": [
            {"topic": topic, "destination": destination, "records": number}
            for (topic, destination), number in sorted(waiting.items())
        ],
        "failing": failing(streaks, successes),
    }


def breakers_of(
    pipe: str, destinations: Iterable[str], live: Mapping[int, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Destination to how its circuit breakers are, over all partition numbers; see `breakers.merged`."""
    told: defaultdict[str, list[list[list[Any]]]] = defaultdict(list)
    for now in live.values():
        for name, destination, words in now.get("breakers", ()):
            if name == pipe:
                told[destination].append(words)
    return {destination: breaker_reports.merged(told[destination]) for destination in destinations}


def failing(streaks: Iterable[list[Any]], successes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Destinations whose last outcomes were all the same failure, whichever partition numbers they were on.

    Args:
        streaks: destination, and what `Streak.json` made; one partition number's each.
        successes: destination to its last success on any partition number; it ends the streaks before it.
    """
    by_destination: defaultdict[str, list[FailureStreak]] = defaultdict(list)
    for destination, *row in streaks:
        if len(row) == _STREAK_FIELDS:  # else it is a word of another version
            by_destination[destination].append(FailureStreak(*row))
    found = []
    for destination, its in sorted(by_destination.items()):
        one = _run(its, successes.get(destination, 0))
        if one is not None:
            found.append({"destination": destination} | one)
    return found


def _run(streaks: list[FailureStreak], success_ms: int) -> dict[str, Any] | None:
    """The run of equal failures at the end of all that partition numbers tell of a destination."""
    streaks = [one for one in streaks if one.last_ms >= success_ms]
    if not streaks:
        return None
    newest = max(streaks, key=lambda one: (one.reason not in breaker_reports.REFUSED, one.last_ms))
    same = [one for one in streaks if one.reason in (newest.reason, *breaker_reports.REFUSED)]
    ends = [one.last_ms for one in streaks if one not in same] + [one.after_ms for one in same]
    end_ms = max([success_ms, *ends])
    count, since = 0, []
    for one in same:
        after = [at_ms for at_ms in one.times_ms if at_ms >= end_ms]
        if after:
            whole = one.since_ms >= end_ms
            count += one.count if whole else len(after)
            since.append(one.since_ms if whole else after[0])
    return {"reason": newest.reason, "in_a_row": count, "since_ms": min(since)} if since else None


def groups(live: Mapping[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """Lag of the services' consumer groups by topic, in records and in seconds."""
    made: dict[str, dict[str, Any]] = {}
    for now in live.values():
        for topic, (records, seconds, _) in now["backlogs"].items():
            one = made.setdefault(
                topic,
                {
                    "topic": topic,
                    "service": stage.READERS[stage.kind_of(topic)],
                    "records": 0,
                    "seconds": 0.0,
                },
            )
            one["records"] += records
            one["seconds"] = max(one["seconds"], seconds)
    return [made[topic] for topic in sorted(made)]
