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
from hifi_observe.ledger.closing import Rules, Snapshot, closable
from hifi_observe.ledger.id_set import IdSet, union
from hifi_observe.ledger.ingest_activity import Ingest
from hifi_observe.ledger.pipe_minute import Cell, Count
from hifi_observe.ledger.recent_activity import Live
from hifi_observe.ledger.record_batch import RECEIPT_TIMES, TIMES, Group, Place
from hifi_observe.ledger.stage import Stage


class Seen(Protocol):
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
class Verdict:
    """A closed or amended minute of one pipe on this partition."""

    cell: Cell
    counts: Counter[Count]
    unresolved: list[hops.Unresolved]
    unacknowledged: int = 0
    """Events in `raw` that no tally names, although their epoch went on telling."""
    tally_incomplete: int = 0
    """Events in `raw` whose epoch ended without its closing tally."""


class Book:
    """The books of one partition number."""

    def __init__(self, partition: int, rules: Rules) -> None:
        self.partition = partition
        self.rules = rules
        self.cells: dict[tuple[str, int], Cell] = {}
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
        self.ingest = Ingest()
        self.live = Live()
        self._through: dict[str, int] = {}
        self._snapshot: Snapshot | None = None
        self._transit = durations.Transit()

    @classmethod
    def resume(cls, partition: int, rules: Rules, marker: Mapping[str, Any], cells: Iterable[Cell]) -> "Book":
        """Go on after a restart, from a marker and the closed cells; read on from the marker's restart points."""
        book = cls(partition, rules)
        book.closed_minute = book._closed_before = int(marker["minute"])
        book._through = dict(marker["through"])
        book.positions = dict(marker["restart"])
        book.ingest.first_ms, book.ingest.last_ms = marker.get("tallied", (0, 0))
        book.cells = {(cell.pipe, cell.minute): cell for cell in cells}
        return book

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
            "tallied": (self.ingest.first_ms, self.ingest.last_ms),
            "gaps": {str(minute): gap_s for minute, gap_s in gaps.items() if gap_s is not None},
            "answers": {str(minute): counts for minute, counts in answers.items() if any(counts)},
        }

    def begin(self, snapshot: Snapshot) -> None:
        """Work towards a snapshot: records below its committed offsets count as passed, and are judged at its end."""
        self._snapshot = snapshot
        for topic, committed in snapshot.committed.items():
            self._backlog(topic).commit(committed)
        self._apply_tallies()

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

    def take(self, topic: str, records: Sequence[Seen]) -> None:
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
            self._apply_tallies()
        else:
            self._take_events(topic, kind, records)
        self.positions[topic] = records[-1].offset + 1

    def settle(self) -> list[Verdict]:
        """Judge at the snapshot that was reached: what closes now, and what changed since it closed."""
        if self._snapshot is None:
            return []
        taken_us = self._snapshot.taken_us
        self.drop_snapshot()
        newest = closable(taken_us, self.rules)
        if newest > self.closed_minute:
            self._closed_before, self.closed_minute = self.closed_minute, newest
        verdicts = []
        for key, cell in list(self.cells.items()):
            if (cell.open and cell.minute <= self.closed_minute) or cell.dirty:
                verdicts.append(self._judge(cell))
            if self._forgettable(cell, taken_us):
                del self.cells[key]
        self._through = self._counted()
        self.ingest.forget(self.closed_minute - 3000)
        return verdicts

    def restart_points(self) -> dict[str, int]:
        """Topic to the offset from which the open minutes can be counted anew and every waiting record is met again."""
        points = self._counted()
        for cell in self.cells.values():
            if cell.open:
                for topic, first in cell.firsts.items():
                    points[topic] = min(first, points.get(topic, first))
        for topic, backlog in self.backlogs.items():
            if backlog.head is not None:
                points[topic] = min(backlog.head, points.get(topic, backlog.head))
        tally_first = self.ingest.first_offset(self.closed_minute)
        if tally_first is not None and stage.ACCEPTED in points:
            points[stage.ACCEPTED] = min(tally_first, points[stage.ACCEPTED])
        return points

    def pending(self, cell: Cell, at: Stage) -> IdSet:
        """Identities of a cell whose records of a stage are not committed past."""
        return union(
            backlog.holding(cell, at)
            for topic, backlog in self.backlogs.items()
            if stage.kind_of(topic) == at.kind
        )

    def look(self, cell: Cell) -> Verdict:
        """The state of a minute as it is now; not a judgement while the minute is open."""
        return Verdict(cell, cell.frozen + hops.counts(cell), hops.unresolved(cell, self.pending))

    def _judge(self, cell: Cell) -> Verdict:
        left = hops.unresolved(cell, self.pending)
        now = hops.counts(cell)
        verdict = Verdict(cell, cell.frozen + now, left)
        if cell.open:
            verdict.unacknowledged, verdict.tally_incomplete = self.ingest.untold(cell)
            cell.untold = (verdict.unacknowledged, verdict.tally_incomplete)
        verdict.unacknowledged, verdict.tally_incomplete = cell.untold
        keep = union([*(one.ids for one in left), hops.unread(cell)])
        cell.close(now, keep, self._counted())
        cell.frozen.subtract(hops.counts(cell))
        return verdict

    def _forgettable(self, cell: Cell, now_us: int) -> bool:
        if cell.open or cell.dirty:
            return False
        age_s = now_us / 1_000_000 - (cell.minute + 1) * 60
        return age_s > self.rules.follow_s or (
            age_s > self.rules.amend_s + self.rules.settle_s and not cell.unresolved
        )

    def _take_events(  # noqa: C901, PLR0912 - the hot path: each call that it saves is saved for every record
        self, topic: str, kind: str, records: Sequence[Seen]
    ) -> None:
        """Sort the records into groups, then enter each group at once."""
        backlog = self._backlog(topic) if kind in stage.READERS else None
        committed = backlog.committed if backlog is not None else 0
        names = (PIPE, MINUTE, *record_stages.deciding(kind))
        times = RECEIPT_TIMES if kind == stage.RECEIPTS else TIMES
        places: dict[tuple[bytes, bytes], Place | None] = {}
        groups: dict[tuple[bytes | None, ...], Group | None] = {}
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
                    group.cell.replay(group.stages[0].who, group.epoch, sequence)
                continue
            if not counted:
                if group.first < 0:
                    group.first = offset
                group.last = offset
                group.shown.append(sequence)
                if group.timed is not None:
                    group.timed.append((identity, record.timestamp, *map(headers.get, times)))
                if kind == stage.RECEIPTS:
                    self._outcome(group.cell.pipe, group.stages[0], headers, record.timestamp)
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
        places: dict[tuple[bytes, bytes], Place | None],
    ) -> Group | None:
        """Where a record belongs; None: nowhere any more. Raises KeyError and ValueError where it is not hifi's."""
        whose = (headers[PIPE], headers[MINUTE])
        stages = record_stages.stages_of(kind)(headers)
        if whose not in places:
            places[whose] = self._place(topic, whose, offset)
        place = places[whose]
        return place.group(kind, stages, epoch) if place is not None else None

    def _enter(self, topic: str, kind: str, place: Place) -> None:
        place.enter(topic)
        pipe = place.cell.pipe
        for group in place.groups.values():
            if group.shown:
                self.live.note(pipe, group.stages[0], len(group.shown))
        ends = place.measure(kind, self._transit)
        if ends:
            self.live.lags(pipe, ends)

    def _outcome(self, pipe: str, at: Stage, headers: Mapping[str, bytes], append_ms: int) -> None:
        self.live.breaker(pipe, at, headers, append_ms)
        if at.kind == "delivered":
            self.live.success(pipe, at.who, append_ms)
        else:
            reason = headers.get(STATUS) or headers.get(REASON) or b"no answer"
            self.live.outcome(pipe, at, reason.decode("utf-8", "replace"), append_ms)

    def _place(self, topic: str, whose: tuple[bytes, bytes], offset: int) -> Place | None:
        cell = self._cell(topic, whose[0].decode("ascii"), int(whose[1]), offset)
        return None if cell is None else Place(cell, cell.counted_to(topic))

    def _cell(self, topic: str, pipe: str, minute: int, offset: int) -> Cell | None:
        key = (pipe, minute)
        cell = self.cells.get(key)
        if cell is not None:
            return cell
        cell = Cell(*key)
        if minute <= self.closed_minute:
            if offset < self._through.get(topic, 0):
                return None
            if (self.closed_minute - minute) * 60 > self.rules.amend_s:
                self.too_late[topic] += 1
                return None
            cell.open = False
        self.cells[key] = cell
        return cell

    def _counted(self) -> dict[str, int]:
        """Topic to the next offset that is not in the cells yet."""
        waiting = self.ingest.first_waiting
        return dict(self.positions) if waiting is None else self.positions | {stage.ACCEPTED: waiting}

    def _backlog(self, topic: str) -> Backlog:
        backlog = self.backlogs.get(topic)
        if backlog is None:
            backlog = self.backlogs[topic] = Backlog()
        return backlog

    def _apply_tallies(self) -> None:
        """Only what lies below the snapshot: `raw` is read at least as far as that tells."""
        if self._snapshot is None:
            return
        for offset, pipe, minute, epoch, first, last in self.ingest.take(self._snapshot.tallies_end):
            cell = self._cell(stage.ACCEPTED, pipe, minute, offset)
            if cell is not None and offset >= cell.counted_to(stage.ACCEPTED):
                cell.show_range(Stage(stage.ACCEPTED), epoch, first, last)
