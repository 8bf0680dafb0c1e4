"""Recent activity on a partition: records by stage, lags, dead letters, destinations that keep failing."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Final

from hifi_observe.ledger.breaker_reports import REFUSED, BreakerReports, ReceiptAnswer
from hifi_observe.ledger.sketch import Sketch
from hifi_observe.ledger.stage import EventStage

SAME_ANSWERS: Final = 10
"""Equal failures in a row that start a destination's alarm."""
DEAD_LETTERS_S: Final = 60
"""Dead letters are counted over this period before now."""
LATE: Final = "late"
"""Name of the count of late deliveries."""
_REVISIONS: Final = 8
"""Revisions of a pipe that are counted; beyond, the one without records for longest is forgotten."""
_DESTINATIONS: Final = 5000
"""Destinations whose breakers are kept; beyond, those seen first are forgotten."""


@dataclass(slots=True)
class FailureStreak:
    """Outcomes of a destination in a row that were the same failure. Times in milliseconds since 1970 UTC.

    Deliveries that were handed to the retrier without a request, because the destination had failed before, belong to
    the same streak.
    """

    reason: str
    count: int
    since_ms: int
    last_ms: int
    previous_failure_ms: int = 0
    """Time of the last different failure; 0: there was none since a success."""
    times_ms: deque[int] = field(default_factory=lambda: deque(maxlen=SAME_ANSWERS))
    """Of the newest outcomes."""

    def dump(self) -> list[Any]:
        """JSON row for the topic `minutes`."""
        return [
            self.reason, self.count, self.since_ms, self.last_ms, self.previous_failure_ms, list(self.times_ms)
        ]  # fmt: skip

    @classmethod
    def load(cls, row: list[Any]) -> "FailureStreak | None":
        """Restore what `dump` returned; None if another version of observe wrote it."""
        return cls(*row) if len(row) == len(fields(cls)) else None


class RecentActivity:
    """Counts since the start, and lags since they were last taken."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Pipe to kind of stage to records seen."""
        self.newest_ms = 0
        """Append time of the newest record seen, milliseconds since 1970 UTC."""
        self.streaks: dict[tuple[str, str], FailureStreak] = {}
        """Pipe and destination to its streak of equal failures."""
        self.successes: dict[tuple[str, str], int] = {}
        """Pipe and destination to append time of its last delivery's receipt, milliseconds since 1970 UTC."""
        self.breakers: dict[tuple[str, str], BreakerReports] = {}
        """Pipe and destination to what its receipts report of its circuit breakers."""
        self.skipped: Counter[str] = Counter()
        """Topic to offsets that Kafka had deleted before observe read them."""
        self.skipped_us = 0
        """When that was last found, microseconds since 1970 UTC."""
        self.deleted: dict[tuple[str, str], tuple[int, int, int, int]] = {}
        """Pipe and source partition to number, first and last offset of the records that were deleted before collect
        read them, and when that was last reported, milliseconds since 1970 UTC."""
        self._dead_letters: defaultdict[str, Counter[int]] = defaultdict(Counter)
        """Pipe to second since 1970 UTC to dead letters appended in it."""
        self.revisions: defaultdict[str, dict[int, Counter[str]]] = defaultdict(dict)
        """Pipe to its revisions that had records last, each with kind of stage to records seen, and `late` to late
        deliveries; the newest records are last."""
        self.refused: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Pipe to service to whole events that it made dead letters."""
        self._lags: defaultdict[tuple[str, int], Sketch] = defaultdict(Sketch)

    def note(self, pipe: str, revision: int, event_stage: EventStage, number: int) -> None:
        """Count records of a stage."""
        self.counts[pipe][event_stage.kind] += number
        self._revision_counts(pipe, revision)[event_stage.kind] += number
        if event_stage.kind == "dead-event":
            self.refused[pipe][event_stage.destination] += number

    def note_late(self, pipe: str, revision: int, number: int) -> None:
        """Count deliveries that took longer than the pipe's SLO allows."""
        self._revision_counts(pipe, revision)[LATE] += number

    def _revision_counts(self, pipe: str, revision: int) -> Counter[str]:
        revisions = self.revisions[pipe]
        counts = revisions.pop(revision, None)
        if counts is None:
            counts = Counter()
            if len(revisions) == _REVISIONS:
                del revisions[next(iter(revisions))]
        revisions[revision] = counts
        return counts

    def dead_letter(self, pipe: str, append_ms: int) -> None:
        """Count a dead letter, by its append time."""
        self._dead_letters[pipe][append_ms // 1000] += 1

    def recent_dead_letters(self, now_s: int) -> dict[str, int]:
        """Pipe to dead letters of the last `DEAD_LETTERS_S` seconds; forgets older ones."""
        by_pipe = {}
        for pipe, by_second in list(self._dead_letters.items()):
            for expired in [second for second in by_second if second <= now_s - DEAD_LETTERS_S]:
                del by_second[expired]
            if by_second:
                by_pipe[pipe] = by_second.total()
            else:
                del self._dead_letters[pipe]
        return by_pipe

    def success(self, pipe: str, destination: str, append_ms: int) -> None:
        """Add the receipt of a successful delivery."""
        self.successes[pipe, destination] = append_ms
        self.streaks.pop((pipe, destination), None)

    def outcome(self, pipe: str, event_stage: EventStage, reason: str, append_ms: int) -> None:
        """Add any other receipt; `reason` is the answer's status, or a code if there was no answer."""
        if event_stage.kind in ("filtered", "duplicate"):
            return  # these outcomes do not depend on the destination
        key = (pipe, event_stage.destination)
        streak = self.streaks.get(key)
        if streak is None:
            streak = self.streaks[key] = FailureStreak(reason, 0, append_ms, append_ms)
        elif streak.reason in REFUSED:
            streak.reason = reason
        elif reason not in (streak.reason, *REFUSED):
            streak = self.streaks[key] = FailureStreak(reason, 0, append_ms, append_ms, streak.last_ms)
        streak.count += 1
        streak.last_ms = append_ms
        streak.times_ms.append(append_ms)

    def breaker(self, pipe: str, event_stage: EventStage, answer: ReceiptAnswer, append_ms: int) -> None:
        """Add what a receipt reports of a circuit breaker, if anything."""
        if not event_stage.destination:
            return
        key = (pipe, event_stage.destination)
        reports = self.breakers.get(key)
        if reports is None:
            if len(self.breakers) >= _DESTINATIONS:
                del self.breakers[next(iter(self.breakers))]
            reports = self.breakers[key] = BreakerReports()
        reports.add("retry" if event_stage.kind == "to-retry" else event_stage.kind, answer, append_ms)

    def skip(self, topic: str, number: int, now_us: int) -> None:
        """Count offsets that Kafka had deleted before they were read."""
        self.skipped[topic] += number
        self.skipped_us = now_us

    def source_deleted(self, ranges: Iterable[tuple[str, str, int, int]], append_ms: int) -> None:
        """Add offsets of sources that were deleted before collect read them."""
        for pipe, partition, first_offset, last_offset in ranges:
            records, start, _, _ = self.deleted.get((pipe, partition), (0, first_offset, 0, 0))
            self.deleted[pipe, partition] = (
                records + last_offset - first_offset + 1,
                start,
                last_offset,
                append_ms,
            )

    def add_lags(self, pipe: str, revision: int, lags_us: list[int]) -> None:
        """Add lags of successful deliveries from accepted time, microseconds."""
        self._lags[pipe, revision].extend(lags_us)

    def take_lags(self) -> dict[tuple[str, int], Sketch]:
        """The lags of each pipe and revision since they were last taken."""
        lags = dict(self._lags)
        self._lags.clear()
        return lags
