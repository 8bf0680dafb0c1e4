"""Momentary figures: published for each partition number by the instance that holds its ledger, then added up. Pure."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hifi.delivery.source_report import SourceReport, add_up, seconds_left
from hifi_observe.ledger import stage
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.ledger.recent_activity import FailureStreak
from hifi_observe.ledger.sketch import Sketch
from hifi_observe.live.breaker_state import BreakerView, breaker_state
from hifi_observe.live.failing_destinations import failing_destinations
from hifi_observe.minutes.availability import SloLimits
from hifi_observe.minutes.merged_minute import summary

_SOURCES_MS: Final = 15_000
"""Maximum age of a source's report by collect that counts, milliseconds."""


def of_ledger(
    ledger: PartitionLedger, now_us: int, lags: Mapping[str, Sketch], rolling: Collection[str] = ()
) -> dict[str, Any]:
    """The figures of a partition number as JSON for the topic `minutes`.

    Args:
        ledger: of the partition number.
        now_us: microseconds since 1970 UTC.
        lags: pipe to its recent lags.
        rolling: pipes with a rollout, whose figures by revision are added.
    """
    live = ledger.live
    return {
        "at": now_us,
        "reached": ledger.reached_us,
        "newest": live.newest_ms,
        "counts": {pipe: dict(counts) for pipe, counts in live.counts.items()},
        "revisions": {
            pipe: {str(revision): dict(counts) for revision, counts in live.revisions[pipe].items()}
            for pipe in rolling
            if pipe in live.revisions
        },
        "dead_letters": live.recent_dead_letters(now_us // 1_000_000),
        "lags": {pipe: sketch.dump() for pipe, sketch in lags.items() if len(sketch)},
        "waiting": [[*key, number] for key, number in sorted(_waiting(ledger).items())],
        "backlogs": _backlogs(ledger, now_us // 1000),
        "streaks": [[*key, *streak.dump()] for key, streak in sorted(live.streaks.items())],
        "successes": [[*key, last_ms] for key, last_ms in sorted(live.successes.items())],
        "breakers": [[*key, reports.dump()] for key, reports in sorted(live.breakers.items())],
        "skipped": dict(live.skipped),
        "skipped_at": live.skipped_us,
        "source_deleted": [[*key, *deletion] for key, deletion in sorted(live.deleted.items())],
        "ack_reported": ledger.ingest.last_ms,
        "sources": _sources(ledger, now_us // 1000),
        "foreign": sum(ledger.foreign.values()),
        "too_late": sum(ledger.too_late.values()),
        "pipe_minutes": len(ledger.pipe_minutes),
    }


def _waiting(ledger: PartitionLedger) -> Counter[tuple[str, str, str]]:
    """Pipe, topic and destination to records that are not processed yet."""
    waiting: Counter[tuple[str, str, str]] = Counter()
    for topic, backlog in ledger.backlogs.items():
        for (pipe, destination), number in backlog.waiting().items():
            waiting[pipe, topic, destination] += number
    return waiting


def _sources(ledger: PartitionLedger, now_ms: int) -> dict[str, list[SourceReport]]:
    """Pipe to the progress of its source, as each instance of collect reported it lately."""
    reports_by_pipe: defaultdict[str, list[SourceReport]] = defaultdict(list)
    for reported_ms, reports in ledger.ingest.sources.values():
        if now_ms - reported_ms < _SOURCES_MS:
            for pipe, report in reports.items():
                reports_by_pipe[pipe].append(report)
    return dict(reports_by_pipe)


def _backlogs(ledger: PartitionLedger, now_ms: int) -> dict[str, dict[str, Any]]:
    backlogs = {}
    for topic, backlog in sorted(ledger.backlogs.items()):
        state = backlog.state(now_ms)
        backlogs[topic] = {
            "records": state.records,
            "uncommitted": state.uncommitted,
            "seconds": round(state.seconds, 3),
            "committed": backlog.committed,
            "processed": backlog.processed_raw_offset,
        }
    return backlogs


def count_late(
    ledger: PartitionLedger, lags: Mapping[tuple[str, int], Sketch], limits: Mapping[str, SloLimits]
) -> None:
    """Count the deliveries above the SLO's lag, by pipe and revision."""
    for (pipe, revision), sketch in lags.items():
        if pipe in limits:
            ledger.live.note_late(pipe, revision, sketch.above(limits[pipe].p95_us))


class LagWindow:
    """The lags of the last few intervals, so that a momentary p95 has enough values."""

    def __init__(self, intervals: int) -> None:
        self._intervals = intervals
        self._recent_lags: list[dict[tuple[str, int], Sketch]] = []

    def put(self, interval_lags: dict[tuple[str, int], Sketch]) -> dict[str, Sketch]:
        """Add one interval by pipe and revision; returns the lags of the last few by pipe, merged."""
        self._recent_lags = [*self._recent_lags, interval_lags][-self._intervals :]
        merged: defaultdict[str, Sketch] = defaultdict(Sketch)
        for lags_by_revision in self._recent_lags:
            for (pipe, _), sketch in lags_by_revision.items():
                merged[pipe].merge(sketch)
        return dict(merged)


@dataclass(slots=True)
class _PipeFigures:
    """One pipe's figures, added up over partition numbers."""

    lags: Sketch = field(default_factory=Sketch)
    rates: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Kind of stage to records per second."""
    dead_letters: int = 0
    waiting: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Topic and destination to records that are not processed yet."""
    streaks: defaultdict[str, list[FailureStreak]] = field(default_factory=lambda: defaultdict(list))
    successes: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    sources: list[SourceReport] = field(default_factory=list)
    """Of each instance of collect that reads its source."""

    def add(self, pipe: str, figures: Mapping[str, Any], previous_figures: Mapping[str, Any] | None) -> None:
        """Add the figures of a partition number; `previous_figures` are its previous ones, for rates."""
        if pipe in figures["lags"]:
            self.lags.merge(Sketch.load(figures["lags"][pipe]))
        if previous_figures is not None and figures["at"] > previous_figures["at"]:
            elapsed_s = (figures["at"] - previous_figures["at"]) / 1e6
            counts, previous_counts = (
                figures["counts"].get(pipe, {}),
                previous_figures["counts"].get(pipe, {}),
            )
            for kind, count in counts.items():
                self.rates[kind] += max(0, count - previous_counts.get(kind, 0)) / elapsed_s
        self.dead_letters += figures["dead_letters"].get(pipe, 0)
        for name, topic, destination, waiting_count in figures["waiting"]:
            if name == pipe:
                self.waiting[topic, destination] += waiting_count
        for name, destination, *row in figures["streaks"]:
            streak = FailureStreak.load(row) if name == pipe else None
            if streak is not None:
                self.streaks[destination].append(streak)
        for name, destination, last_ms in figures["successes"]:
            if name == pipe:
                self.successes[destination] = max(self.successes[destination], last_ms)
        self.sources += figures.get("sources", {}).get(pipe, ())


def of_pipe(
    pipe: str, live: Mapping[int, dict[str, Any]], previous_live: Mapping[int, dict[str, Any]]
) -> dict[str, Any]:
    """A pipe's figures over all partition numbers.

    Args:
        pipe: its name.
        live: partition number to what `of_ledger` returned.
        previous_live: the same, one interval earlier.

    Returns:
        `rate_in`, `rate_out`, `rate_dead` per second; `dead_last_minute`: dead letters of the last 60 s; `lag`: summary
        of the momentary end-to-end lags; `retrying`, `in_flight`: records that are not processed yet, on retry tiers
        and elsewhere; `waiting`: the same by topic and destination; `failing`: see `failing_destinations`; `source`:
        the fields of `SourceReport` and `left_s`, the estimated time until nothing remains in it; None: there is none.
    """
    totals = _PipeFigures()
    for partition, figures in live.items():
        totals.add(pipe, figures, previous_live.get(partition))
    retrying = sum(
        number for (topic, _), number in totals.waiting.items() if stage.kind_of(topic) == stage.RETRY_IN
    )
    return {
        "rate_in": round(totals.rates[stage.RAW], 1),
        "rate_out": round(totals.rates["delivered"], 1),
        "rate_dead": round(totals.rates["dead-event"] + totals.rates["dead-delivery"], 2),
        "dead_last_minute": totals.dead_letters,
        "lag": summary(totals.lags),
        "retrying": retrying,
        "in_flight": totals.waiting.total() - retrying,
        "waiting": [
            {"topic": topic, "destination": destination, "records": number}
            for (topic, destination), number in sorted(totals.waiting.items())
        ],
        "failing": failing_destinations(totals.streaks, totals.successes),
        "source": _source(totals.sources),
    }


def _source(reports: list[SourceReport]) -> dict[str, Any] | None:
    if not reports:
        return None
    report = add_up(reports)
    left_s = seconds_left(report)
    return {**report, "left_s": None if left_s is None else round(left_s)}


def breakers_of(
    pipe: str, destinations: Iterable[str], live: Mapping[int, dict[str, Any]]
) -> dict[str, BreakerView]:
    """Destination to the state of its circuit breaker over all partition numbers; see `breaker_state`."""
    rows_by_destination: defaultdict[str, list[list[list[Any]]]] = defaultdict(list)
    for figures in live.values():
        for name, destination, rows in figures["breakers"]:
            if name == pipe:
                rows_by_destination[destination].append(rows)
    return {destination: breaker_state(rows_by_destination[destination]) for destination in destinations}


def groups(live: Mapping[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """Backlogs of the services' consumer groups by topic, over all partition numbers.

    Returns:
        `topic`, `service`, `records`: not processed yet, `uncommitted`: processed, but their offsets are not committed
        yet (enrich commits at the end of a Spark batch), `seconds`: age of the oldest that is not processed.
    """
    by_topic: dict[str, dict[str, Any]] = {}
    for figures in live.values():
        for topic, backlog in figures["backlogs"].items():
            service = stage.READERS[stage.kind_of(topic)]
            empty_group = {"topic": topic, "service": service, "records": 0, "uncommitted": 0, "seconds": 0.0}
            group = by_topic.setdefault(topic, empty_group)
            group["records"] += backlog["records"]
            group["uncommitted"] += backlog["uncommitted"]
            group["seconds"] = max(group["seconds"], backlog["seconds"])
    return [by_topic[topic] for topic in sorted(by_topic)]
