"""Minutes that are still open, as they stand: provisional figures until a minute closes. Pure.

Loss is judged when the minute closes: an event that has not arrived yet may still be on its way.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.sketch import Sketch
from hifi_observe.ledger.stage import ACCEPTED, RAW, EventStage
from hifi_observe.minutes.merged_minute import summary

PROVISIONAL: Final = "provisional"
MOST_ROWS: Final = 500
"""Rows of one report, so that thousands of pipes do not make one large record; the rest is in the next report."""
_FULL_REPORT_EVERY: Final = 30
_END: Final = "end.accepted/"
_STEP_SUFFIXES: Final = (".process", ".transit")


@dataclass(slots=True)
class OpenMinute:
    """The figures of one open minute of a pipe, of one partition or merged over several."""

    pipe: str
    minute: int
    events_in: int = 0
    delivered: int = 0
    dead: int = 0
    duplicates: int = 0
    lags: Sketch = field(default_factory=Sketch)
    """End-to-end lag of every delivery so far, from accepted time, microseconds."""
    backfill: int = 0
    """Events that collect read while it caught up with a source; their lags are left out."""
    steps: dict[str, tuple[int, int | float]] = field(default_factory=dict)
    """Step of the event path to the number of its measurements and their sum, microseconds."""
    filtered: int = 0
    """Events that no destination wanted."""

    @classmethod
    def of(cls, pipe_minute: PipeMinute) -> "OpenMinute":
        """The figures of one partition's minute."""
        event_sets = pipe_minute.seen.get(EventStage(RAW)), pipe_minute.seen.get(EventStage(ACCEPTED))
        sizes = [len(ids) for ids in event_sets if ids is not None]
        figures = cls(pipe_minute.pipe, pipe_minute.minute, max(sizes, default=0))
        figures.backfill = len(pipe_minute.backfill)
        for stage, ids in pipe_minute.seen.items():
            if stage.kind == "delivered":
                figures.delivered += len(ids)
                figures.duplicates += pipe_minute.copies[stage]
            elif stage.kind in ("dead-event", "dead-delivery"):
                figures.dead += len(ids)
            elif stage.kind == "filtered" and not stage.destination:
                figures.filtered += len(ids)
        for name, sketch in pipe_minute.sketches.items():
            if name.startswith(_END):
                figures.lags.merge(sketch)
            elif name.endswith(_STEP_SUFFIXES) or name.startswith("expel/"):
                figures.steps[name] = len(sketch), sketch.sum_us
        return figures

    def add(self, figures: "OpenMinute") -> None:
        """Merge another partition's figures of the same minute."""
        self.events_in += figures.events_in
        self.delivered += figures.delivered
        self.dead += figures.dead
        self.duplicates += figures.duplicates
        self.filtered += figures.filtered
        self.backfill += figures.backfill
        self.lags.merge(figures.lags)
        for name, (count, sum_us) in figures.steps.items():
            known_count, known_sum_us = self.steps.get(name, (0, 0))
            self.steps[name] = known_count + count, known_sum_us + sum_us

    def dump(self) -> dict[str, Any]:
        """JSON for the topic `minutes`."""
        return {
            "pipe": self.pipe,
            "minute": self.minute,
            "in": self.events_in,
            "delivered": self.delivered,
            "dead": self.dead,
            "duplicates": self.duplicates,
            "backfill": self.backfill,
            "lags": self.lags.dump(),
            "steps": self.steps,
            "filtered": self.filtered,
        }

    @classmethod
    def load(cls, dump: Mapping[str, Any]) -> "OpenMinute":
        """Restore what `dump` returned."""
        steps = {name: (count, sum_us) for name, (count, sum_us) in dump["steps"].items()}
        return cls(
            dump["pipe"],
            dump["minute"],
            dump["in"],
            dump["delivered"],
            dump["dead"],
            dump["duplicates"],
            Sketch.load(dump["lags"]),
            dump.get("backfill", 0),
            steps,
            dump.get("filtered", 0),
        )

    def json(self, slo_p95_us: int) -> dict[str, Any]:
        """The minute in the form of a closed one; what is judged at closing is None."""
        lags = {
            name: {"count": count, "mean": sum_us / count}
            for name, (count, sum_us) in sorted(self.steps.items())
            if count
        }
        lags |= {_END: summary(self.lags)} if len(self.lags) else {}
        return {
            "pipe": self.pipe,
            "minute": self.minute,
            "state": PROVISIONAL,
            "causes": [],
            "in": self.events_in,
            "delivered": self.delivered,
            "dead": self.dead,
            "duplicates": self.duplicates,
            "filtered": self.filtered,
            "lost": None,
            "waiting": None,
            "parked": None,
            "in_flight": None,
            "refused_paused": None,
            "late": None,
            "backfill": self.backfill,
            "p95_us": round(self.lags.quantile_us(0.95)) if len(self.lags) else None,
            "slo_p95_us": slo_p95_us,
            "lags": lags,
        }


class OpenMinuteReporter:
    """Chooses the open minutes of one partition's ledger that have changed since they were last reported."""

    def __init__(self) -> None:
        self._reported: dict[tuple[str, int], int] = {}
        """Pipe and minute to the number of its changes when it was last reported."""
        self._reports = 0

    def report(self, pipe_minutes: Iterable[PipeMinute]) -> list[dict[str, Any]]:
        """The rows to publish now, the newest minutes first; now and then also those that have not changed.

        An instance that starts late has read only the newest report, so every 30th one is complete.
        """
        self._reports += 1
        if self._reports % _FULL_REPORT_EVERY == 0:
            self._reported.clear()
        open_minutes = {
            (pipe_minute.pipe, pipe_minute.minute): pipe_minute
            for pipe_minute in pipe_minutes
            if pipe_minute.open
        }
        changed_minutes = [
            pipe_minute
            for key, pipe_minute in open_minutes.items()
            if self._reported.get(key) != pipe_minute.changes
        ]
        changed_minutes.sort(key=lambda pipe_minute: pipe_minute.minute, reverse=True)
        self._reported = {key: changes for key, changes in self._reported.items() if key in open_minutes}
        rows = []
        for pipe_minute in changed_minutes[:MOST_ROWS]:
            self._reported[pipe_minute.pipe, pipe_minute.minute] = pipe_minute.changes
            rows.append(OpenMinute.of(pipe_minute).dump() | {"offsets": pipe_minute.offsets})
        return rows


class OpenMinutes:
    """The open minutes of all pipes and partitions, kept from the reports on the topic `minutes`."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[int, dict[int, Mapping[str, Any]]]] = {}
        """Pipe to minute to partition to its row."""

    def take(self, partition: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take one report of a partition."""
        for row in rows:
            minutes = self._rows.setdefault(row["pipe"], {})
            minutes.setdefault(row["minute"], {})[partition] = row

    def close(self, pipe: str, minute: int) -> None:
        """The merged minute is known: it is no longer provisional."""
        minutes = self._rows.get(pipe)
        if minutes is not None:
            for old_minute in [open_minute for open_minute in minutes if open_minute <= minute]:
                del minutes[old_minute]

    def known(self, pipe: str) -> set[int]:
        """The minutes of a pipe that are open and have events."""
        return set(self._rows.get(pipe, ()))

    def offsets(self, pipe: str, minute: int) -> dict[str, Mapping[str, Sequence[int]]]:
        """Partition to topic to the first and last offset of an open minute so far, as a merged minute has them."""
        rows = self._rows.get(pipe, {}).get(minute, {})
        return {str(partition): row.get("offsets", {}) for partition, row in rows.items()}

    def of(self, pipe: str) -> list[OpenMinute]:
        """The open minutes of a pipe, merged over the partitions, oldest first."""
        minutes = []
        for minute, rows in sorted(self._rows.get(pipe, {}).items()):
            merged = OpenMinute(pipe, minute)
            for row in rows.values():
                merged.add(OpenMinute.load(row))
            minutes.append(merged)
        return minutes
