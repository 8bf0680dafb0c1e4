"""All that one partition number tells, over all topics: takes records and snapshots, gives closed minutes.

No input or output, no clock, no Kafka client: whoever drives it brings records, snapshots and the time.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hifi.errors import NotAnEvent
from hifi.event import MINUTE, PIPE, REASON, REPLAY, SEQ, STATUS
from hifi_observe.ledger import ack_report, durations, hops, record_stages, stage
from hifi_observe.ledger.backlog import Backlog, Row
from hifi_observe.ledger.closing import ClosingRules, OffsetSnapshot, closable
from hifi_observe.ledger.id_set import IdSet, union
from hifi_observe.ledger.ingest_activity import IngestActivity
from hifi_observe.ledger.pipe_minute import Count, PipeMinute
from hifi_observe.ledger.recent_activity import RecentActivity
from hifi_observe.ledger.record_batch import RECEIPT_TIMES, TIMES, MinuteBatch, RecordGroup
from hifi_observe.ledger.stage import Stage


class ConsumedRecord(Protocol):
    """A record as any Kafka client gives it."""

    @property
    def offset(self) -> int:
        """Its offset."""

    @property
    def timestamp(self) -> int:
        """Append time, milliseconds since 1970 UTC."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes]]:
        """Name and value."""

    @property
    def value(self) -> bytes | None:
        """Looked at in the topic `accepted` only."""


@dataclass(slots=True)
class MinuteResult:
    """A closed or amended minute of one pipe on this partition."""

    pipe_minute: PipeMinute
    counts: Counter[Count]
    unresolved: list[hops.Unresolved]
    unacknowledged: int = 0
    """Events in `raw` that no tally names, although their epoch went on telling."""
    ack_report_incomplete: int = 0
    """Events in `raw` whose epoch ended without its closing tally."""


class PartitionLedger:
    """The books of one partition number."""

    def __init__(self, partition: int, rules: ClosingRules) -> None:
        self.partition = partition
        self.rules = rules
        self.pipe_minutes: dict[tuple[str, int], PipeMinute] = {}
        self.backlogs: dict[str, Backlog] = {}
        self.positions: dict[str, int] = {}
        self.closed_minute = -1
        """The newest minute that was closed."""
        self._closed_before = -1
        """The newest minute that had been closed before."""
        self.reached_us = 0
        """The moment up to which everything was read, microseconds since 1970 UTC."""
        self.foreign: Counter[str] = Counter()
        """Topic to records that are not hifi's."""
        self.too_late: Counter[str] = Counter()
        """Topic to records of minutes that are no longer amended."""
        self.ingest = IngestActivity()
        self.live = RecentActivity()
        self._through: dict[str, int] = {}
        self._snapshot: OffsetSnapshot | None = None
        self._transit = durations.Transit()

    @classmethod
    def resume(
        cls,
        partition: int,
        rules: ClosingRules,
        marker: Mapping[str, Any],
        pipe_minutes: Iterable[PipeMinute],
    ) -> "PartitionLedger":
        """Go on after a restart, from a marker and the closed cells; read on from the marker's restart points."""
        ledger = cls(partition, rules)
        ledger.closed_minute = ledger._closed_before = int(marker["minute"])
        ledger._through = dict(marker["through"])
        ledger.positions = dict(marker["restart"])
        ledger.ingest.first_ms, ledger.ingest.last_ms = marker.get("ack_reported", (0, 0))
        ledger.pipe_minutes = {
            (pipe_minute.pipe, pipe_minute.minute): pipe_minute for pipe_minute in pipe_minutes
        }
        return ledger

    def marker(self) -> dict[str, Any]:
        """What a restart needs beside the closed cells; to be written after them."""
        first = max(self._closed_before + 1, self.closed_minute - 1500)
        minutes = range(first, self.closed_minute + 1)
        gaps = {minute: self.ingest.gap_s(minute) for minute in minutes}
        answers = {minute: self.ingest.answers(minute) for minute in minutes}
        return {
            "minute": self.closed_minute,
            "through": self._through,
            "restart": self.restart_points(),
            "ack_reported": (self.ingest.first_ms, self.ingest.last_ms),
            "gaps": {str(minute): gap_s for minute, gap_s in gaps.items() if gap_s is not None},
            "answers": {str(minute): counts for minute, counts in answers.items() if any(counts)},
        }

    def begin(self, snapshot: OffsetSnapshot) -> None:
        """Work towards a snapshot: records below its committed offsets count as passed, and are judged at its end."""
        self._snapshot = snapshot
        for topic, committed in snapshot.committed.items():
            self._backlog(topic).commit(committed)
        self._apply_ack_reports()

    @property
    def busy(self) -> bool:
        """It works towards a snapshot."""
        return self._snapshot is not None

    def drop_snapshot(self) -> None:
        """Nothing is to be judged now; what was passed stays passed."""
        if self._snapshot is not None:
            self.reached_us, self._snapshot = self._snapshot.taken_us, None

    @property
    def reached(self) -> bool:
        """Everything that the snapshot speaks of has been read."""
        return self._snapshot is not None and self._snapshot.reached(self.positions)

    def take(self, topic: str, records: Sequence[ConsumedRecord]) -> None:
        """Records of a topic (named without the stream), in offset order."""
        if not records:
            return
        kind = stage.kind_of(topic)
        if kind == stage.ACCEPTED:
            for record in records:
                try:
                    self.ingest.tell(record.offset, record.timestamp, ack_report.parse(record.value))
                except NotAnEvent:
                    self.foreign[topic] += 1
            self._apply_ack_reports()
        else:
            self._take_events(topic, kind, records)
        self.positions[topic] = records[-1].offset + 1

    def settle(self) -> list[MinuteResult]:
        """Judge at the snapshot that was reached: what closes now, and what changed since it closed."""
        if self._snapshot is None:
            return []
        taken_us = self._snapshot.taken_us
        self.drop_snapshot()
        newest = closable(taken_us, self.rules)
        if newest > self.closed_minute:
            self._closed_before, self.closed_minute = self.closed_minute, newest
        results = []
        for key, pipe_minute in list(self.pipe_minutes.items()):
            if (pipe_minute.open and pipe_minute.minute <= self.closed_minute) or pipe_minute.dirty:
                results.append(self._judge(pipe_minute))
            if self._forgettable(pipe_minute, taken_us):
                del self.pipe_minutes[key]
        self._through = self._counted()
        self.ingest.forget(self.closed_minute - 3000)
        return results

    def restart_points(self) -> dict[str, int]:
        """Topic to the offset from which the open minutes can be counted anew and every waiting record is met again."""
        points = self._counted()
        for pipe_minute in self.pipe_minutes.values():
            if pipe_minute.open:
                for topic, first in pipe_minute.firsts.items():
                    points[topic] = min(first, points.get(topic, first))
        for topic, backlog in self.backlogs.items():
            if backlog.head is not None:
                points[topic] = min(backlog.head, points.get(topic, backlog.head))
        first_report = self.ingest.first_offset(self.closed_minute)
        if first_report is not None and stage.ACCEPTED in points:
            points[stage.ACCEPTED] = min(first_report, points[stage.ACCEPTED])
        return points

    def pending(self, pipe_minute: PipeMinute, at: Stage) -> IdSet:
        """Identities of a cell whose records of a stage are not committed past."""
        return union(
            backlog.holding(pipe_minute, at)
            for topic, backlog in self.backlogs.items()
            if stage.kind_of(topic) == at.kind
        )

    def look(self, pipe_minute: PipeMinute) -> MinuteResult:
        """The state of a minute as it is now; not a judgement while the minute is open."""
        return MinuteResult(
            pipe_minute,
            pipe_minute.frozen + hops.counts(pipe_minute),
            hops.unresolved(pipe_minute, self.pending),
        )

    def _judge(self, pipe_minute: PipeMinute) -> MinuteResult:
        left = hops.unresolved(pipe_minute, self.pending)
        now = hops.counts(pipe_minute)
        result = MinuteResult(pipe_minute, pipe_minute.frozen + now, left)
        if pipe_minute.open:
            result.unacknowledged, result.ack_report_incomplete = self.ingest.unreported(pipe_minute)
            pipe_minute.unreported = (result.unacknowledged, result.ack_report_incomplete)
        result.unacknowledged, result.ack_report_incomplete = pipe_minute.unreported
        keep = union([*(one.ids for one in left), hops.unread(pipe_minute)])
        pipe_minute.close(now, keep, self._counted())
        pipe_minute.frozen.subtract(hops.counts(pipe_minute))
        return result

    def _forgettable(self, pipe_minute: PipeMinute, now_us: int) -> bool:
        if pipe_minute.open or pipe_minute.dirty:
            return False
        age_s = now_us / 1_000_000 - (pipe_minute.minute + 1) * 60
        return age_s > self.rules.follow_s or (
            age_s > self.rules.amend_s + self.rules.settle_s and not pipe_minute.unresolved
        )

    def _take_events(  # noqa: C901, PLR0912 - the hot path: each call that it saves is saved for every record
        self, topic: str, kind: str, records: Sequence[ConsumedRecord]
    ) -> None:
        """Sort the records into groups, then enter each group at once."""
        backlog = self._backlog(topic) if kind in stage.READERS else None
        committed = backlog.committed if backlog is not None else 0
        names = (PIPE, MINUTE, *record_stages.deciding(kind))
        times = RECEIPT_TIMES if kind == stage.RECEIPTS else TIMES
        places: dict[tuple[bytes, bytes], MinuteBatch | None] = {}
        groups: dict[tuple[bytes | None, ...], RecordGroup | None] = {}
        waiting: list[Row] = []
        for record in records:
            headers = dict(record.headers)
            offset = record.offset
            try:
                identity = headers[SEQ]
                epoch, _, text = identity.partition(b":")
                sequence = int(text)
                alike = (epoch, *map(headers.get, names))
                if alike not in groups:
                    groups[alike] = self._group(topic, kind, headers, epoch, offset, places)
            except (KeyError, ValueError):
                self.foreign[topic] += 1
                continue
            group = groups[alike]
            if group is None:
                continue
            counted = offset < group.through
            if headers.get(REPLAY, b"0") != b"0":
                # A replay stays out of loss and lag; it only moves its delivery from dead-lettered to delivered.
                if not counted and group.stages[0].kind == "delivered":
                    group.pipe_minute.replay(group.stages[0].destination, group.epoch, sequence)
                continue
            if not counted:
                if group.first < 0:
                    group.first = offset
                group.last = offset
                group.shown.append(sequence)
                if group.timed is not None:
                    group.timed.append((identity, record.timestamp, *map(headers.get, times)))
                if kind == stage.RECEIPTS:
                    self._outcome(group.pipe_minute.pipe, group.stages[0], headers, record.timestamp)
            if backlog is None:
                continue
            if offset < committed:
                group.passed.append(sequence)
            else:
                waiting.append((offset, record.timestamp, sequence, group))
        if backlog is not None:
            backlog.put(waiting)
        self.live.newest_ms = max(self.live.newest_ms, records[-1].timestamp)
        for one in places.values():
            if one is not None:
                self._enter(topic, kind, one)

    def _group(
        self,
        topic: str,
        kind: str,
        headers: Mapping[str, bytes],
        epoch: bytes,
        offset: int,
        places: dict[tuple[bytes, bytes], MinuteBatch | None],
    ) -> RecordGroup | None:
        """Where a record belongs; None: nowhere any more. Raises KeyError and ValueError where it is not hifi's."""
        whose = (headers[PIPE], headers[MINUTE])
        stages = record_stages.stages_of(kind)(headers)
        if whose not in places:
            places[whose] = self._place(topic, whose, offset)
        place = places[whose]
        return place.group(kind, stages, epoch) if place is not None else None

    def _enter(self, topic: str, kind: str, place: MinuteBatch) -> None:
        place.enter(topic)
        pipe = place.pipe_minute.pipe
        for group in place.groups.values():
            if group.shown:
                self.live.note(pipe, group.stages[0], len(group.shown))
        ends = place.measure(kind, self._transit)
        if ends:
            self.live.lags(pipe, ends)

    def _outcome(self, pipe: str, at: Stage, headers: Mapping[str, bytes], append_ms: int) -> None:
        self.live.breaker(pipe, at, headers, append_ms)
        if at.kind == "delivered":
            self.live.success(pipe, at.destination, append_ms)
        else:
            reason = headers.get(STATUS) or headers.get(REASON) or b"no answer"
            self.live.outcome(pipe, at, reason.decode("utf-8", "replace"), append_ms)

    def _place(self, topic: str, whose: tuple[bytes, bytes], offset: int) -> MinuteBatch | None:
        pipe_minute = self._cell(topic, whose[0].decode("ascii"), int(whose[1]), offset)
        return None if pipe_minute is None else MinuteBatch(pipe_minute, pipe_minute.counted_to(topic))

    def _cell(self, topic: str, pipe: str, minute: int, offset: int) -> PipeMinute | None:
        key = (pipe, minute)
        pipe_minute = self.pipe_minutes.get(key)
        if pipe_minute is not None:
            return pipe_minute
        pipe_minute = PipeMinute(*key)
        if minute <= self.closed_minute:
            if offset < self._through.get(topic, 0):
                return None
            if (self.closed_minute - minute) * 60 > self.rules.amend_s:
                self.too_late[topic] += 1
                return None
            pipe_minute.open = False
        self.pipe_minutes[key] = pipe_minute
        return pipe_minute

    def _counted(self) -> dict[str, int]:
        """Topic to the next offset that is not in the cells yet."""
        waiting = self.ingest.first_waiting
        return dict(self.positions) if waiting is None else self.positions | {stage.ACCEPTED: waiting}

    def _backlog(self, topic: str) -> Backlog:
        backlog = self.backlogs.get(topic)
        if backlog is None:
            backlog = self.backlogs[topic] = Backlog()
        return backlog

    def _apply_ack_reports(self) -> None:
        """Only what lies below the snapshot: `raw` is read at least as far as that tells."""
        if self._snapshot is None:
            return
        for offset, pipe, minute, epoch, first, last in self.ingest.take(self._snapshot.ack_reports_end):
            pipe_minute = self._cell(stage.ACCEPTED, pipe, minute, offset)
            if pipe_minute is not None and offset >= pipe_minute.counted_to(stage.ACCEPTED):
                pipe_minute.show_range(Stage(stage.ACCEPTED), epoch, first, last)
