"""Heartbeat and failures of ingest, and the events that it did not report, from its ack reports."""

import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

from hifi.delivery.source_report import SourceReport
from hifi_observe.ledger.ack_report import AckReport
from hifi_observe.ledger.id_set import IdSet
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.stage import ACCEPTED, RAW, EventStage

_REPORT_TOLERANCE_MS = 5_000
"""An ack report this long after the end of a minute would have named all of its events."""


class AcknowledgedRange(NamedTuple):
    """A range of sequences in an ack report."""

    offset: int
    """Of the ack report."""
    pipe: str
    minute: int
    epoch: str
    first: int
    last: int


class IngestActivity:
    """Ack reports of one partition, kept until an offset snapshot covers them."""

    def __init__(self) -> None:
        self._waiting_reports: deque[tuple[int, AckReport]] = deque()
        self._last_ms: dict[str, int] = {}
        self._closed_epochs: set[str] = set()
        self._first_offsets: dict[int, int] = {}
        self.first_ms = 0
        """Append time of ingest's first ack report, milliseconds since 1970 UTC; 0: none. Earlier times are unknown."""
        self.last_ms = 0
        """Append time of ingest's newest ack report, milliseconds since 1970 UTC; 0: none."""
        self._beats: defaultdict[int, int] = defaultdict(int)
        """Minute to a bit for each of its seconds in which any ingest process wrote an ack report."""
        self._failed: Counter[int] = Counter()
        """Minute to 5xx answers."""
        self._answered: Counter[int] = Counter()
        """Minute to all answers."""
        self._paused: defaultdict[int, Counter[str]] = defaultdict(Counter)
        """Minute to pipe to requests refused because it is paused."""
        self._counted_ms = 0
        """Answers in ack reports appended up to this time are not counted again, milliseconds since 1970 UTC."""
        self.sources: dict[str, tuple[int, dict[str, SourceReport]]] = {}
        """Epoch to when it reported sources last, milliseconds since 1970 UTC, and the report of each pipe."""
        self._releases: dict[str, str] = {}
        """Epoch of ingest to the release that it runs on, until it is closed."""

    def add(self, offset: int, append_ms: int, report: AckReport) -> None:
        """Add an ack report that was read."""
        minute, second = divmod(append_ms // 1000, 60)
        if report.of_ingest:
            self.first_ms = self.first_ms or append_ms
            self.last_ms = max(self.last_ms, append_ms)
            self._beats[minute] |= 1 << second
        if append_ms > self._counted_ms:
            self._failed[minute] += report.failed
            self._answered[minute] += sum(report.answers.values())
            if report.paused:
                self._paused[minute].update(report.paused)
        self._last_ms[report.epoch] = append_ms
        if report.sources and not report.closed:
            self.sources[report.epoch] = append_ms, report.sources
        else:
            self.sources.pop(report.epoch, None)
        if report.of_ingest:
            self._releases[report.epoch] = report.release
        if report.closed:
            self._closed_epochs.add(report.epoch)
            self._releases.pop(report.epoch, None)
        for reported_minute in {minute, *(event_minute for _, event_minute, _, _ in report.ranges)}:
            self._first_offsets.setdefault(reported_minute, offset)
        if report.ranges:
            self._waiting_reports.append((offset, report))

    def begin_again(self) -> None:
        """The topic is read from its beginning again: offsets so far mean nothing.

        Answers in reports that are read again are not counted again.
        """
        self._counted_ms = max([self._counted_ms, *self._last_ms.values()])
        self._waiting_reports.clear()
        self._first_offsets.clear()

    def releases(self) -> set[str]:
        """The releases that processes of ingest run on which report; empty text: one before 0.1.0rc2."""
        since_ms = self.last_ms - _REPORT_TOLERANCE_MS
        return {
            release for epoch, release in self._releases.items() if self._last_ms.get(epoch, 0) >= since_ms
        }

    def take(self, end_offset: int) -> Iterator[AcknowledgedRange]:
        """Remove the ack reports below an offset and return their ranges."""
        while self._waiting_reports and self._waiting_reports[0][0] < end_offset:
            offset, report = self._waiting_reports.popleft()
            for pipe, minute, first_sequence, last_sequence in report.ranges:
                yield AcknowledgedRange(offset, pipe, minute, report.epoch, first_sequence, last_sequence)

    @property
    def first_waiting(self) -> int | None:
        """Offset of the first ack report that no snapshot covers yet."""
        return self._waiting_reports[0][0] if self._waiting_reports else None

    def unreported(self, pipe_minute: PipeMinute) -> tuple[int, int]:
        """Events of a minute in `raw` that no ack report names: unacknowledged ones, and those of incomplete epochs."""
        unreported_ids = pipe_minute.seen.get(EventStage(RAW), IdSet()) - pipe_minute.seen.get(
            EventStage(ACCEPTED), IdSet()
        )
        unacknowledged = incomplete = 0
        for epoch in unreported_ids.epochs():
            number = len(unreported_ids.only(epoch))
            due_ms = (pipe_minute.minute + 1) * 60_000 + _REPORT_TOLERANCE_MS
            if epoch in self._closed_epochs or self._last_ms.get(epoch, 0) >= due_ms:
                unacknowledged += number
            else:
                incomplete += number
        return unacknowledged, incomplete

    def gap_s(self, minute: int) -> int | None:
        """The longest time within a minute without an ack report, whole seconds; 60: there was none; None: unknown.

        The time before the first ack report is unknown; the minute of the first one counts from there.
        """
        first_minute, second = divmod(self.first_ms // 1000, 60)
        if not self.first_ms or minute < first_minute:
            return None
        beat_bits = self._beats.get(minute, 0)
        if not beat_bits:
            return 60
        edges = [
            second if minute == first_minute else -1,
            *(second for second in range(60) if beat_bits >> second & 1),
            60,
        ]
        return max(
            0,
            *(
                later_second - earlier_second - 1
                for earlier_second, later_second in itertools.pairwise(edges)
            ),
        )

    def answers(self, minute: int) -> tuple[int, int]:
        """Answers in a minute: 5xx, and all."""
        return self._failed[minute], self._answered[minute]

    def paused(self, minute: int) -> dict[str, int]:
        """Pipe to requests refused in a minute because it is paused."""
        return dict(self._paused.get(minute, ()))

    def first_offset(self, closed_minute: int) -> int | None:
        """Offset of the first ack report that was written in, or names, a minute that is not closed; None: none."""
        return min(
            (offset for minute, offset in self._first_offsets.items() if minute > closed_minute), default=None
        )

    def forget(self, minute: int) -> None:
        """Drop everything about minutes up to this one."""
        for figures_by_minute in (
            self._beats,
            self._failed,
            self._answered,
            self._paused,
            self._first_offsets,
        ):
            for old_minute in [old_minute for old_minute in figures_by_minute if old_minute <= minute]:
                del figures_by_minute[old_minute]
        if len(self._last_ms) > 1000:
            for epoch in sorted(self._last_ms, key=self._last_ms.__getitem__)[:-500]:
                del self._last_ms[epoch]
                self._closed_epochs.discard(epoch)
                self.sources.pop(epoch, None)
                self._releases.pop(epoch, None)
