"""All that one partition number tells, over all topics: takes records and snapshots, gives closed minutes.

No input or output, no clock, no Kafka client: whoever drives it brings records, snapshots and the time.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hifi.errors import NotAnEvent
from hifi.event import IN, REASON, SEQ, STATUS
from hifi_observe import facts, hops, measures, stage, tally
from hifi_observe.backlog import Backlog
from hifi_observe.cell import Cell, Count
from hifi_observe.closing import Rules, Snapshot, closable
from hifi_observe.facts import Fact
from hifi_observe.ids import IdSet, union
from hifi_observe.ingest import Ingest
from hifi_observe.live import Live
from hifi_observe.stage import Stage

_BEFORE = {stage.NORMALIZED: stage.RAW, stage.ENRICHED: stage.NORMALIZED, stage.RECEIPTS: stage.ENRICHED}
"""Kind of topic to the one that its writer reads."""
Passed = defaultdict[tuple[Cell, Stage, str], list[int]]
Shown = defaultdict[tuple[Cell, tuple[Stage, ...], str], list[int]]
Durations = defaultdict[tuple[Cell, str], list[int]]


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
        self._transit = measures.Transit()

    @classmethod
    def resume(cls, partition: int, rules: Rules, marker: Mapping[str, Any], cells: Iterable[Cell]) -> "Book":
        """Go on after a restart, from a marker and the closed cells; read on from the marker's restart points."""
        book = cls(partition, rules)
        book.closed_minute = int(marker["minute"])
        book._through = dict(marker["through"])
        book.positions = dict(marker["restart"])
        book.cells = {(cell.pipe, cell.minute): cell for cell in cells}
        return book

    def marker(self) -> dict[str, Any]:
        """What a restart needs beside the closed cells; to be written after them."""
        first = max(self._closed_before + 1, self.closed_minute - 1500)
        gaps = {minute: self.ingest.gap_s(minute) for minute in range(first, self.closed_minute + 1)}
        return {
            "minute": self.closed_minute,
            "through": self._through,
            "restart": self.restart_points(),
            "gaps": gaps if self.ingest.heard else {},
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
                    self.ingest.tell(record.offset, record.timestamp, tally.parse(record.value))
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
            backlog.holding(cell, at) for topic, backlog in self.backlogs.items() if stage.kind_of(topic) == at.kind
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
        return age_s > self.rules.follow_s or (age_s > self.rules.amend_s + self.rules.settle_s and not cell.unresolved)

    def _take_events(self, topic: str, kind: str, records: Sequence[Seen]) -> None:
        backlog = self._backlog(topic) if kind in stage.READERS else None
        shown: Shown = defaultdict(list)
        passed: Passed = defaultdict(list)
        durations: Durations = defaultdict(list)
        for record in records:
            headers = dict(record.headers)
            try:
                fact = facts.read(kind, headers)
            except NotAnEvent:
                self.foreign[topic] += 1
                continue
            cell = self._cell(topic, fact, record.offset)
            if cell is None:
                continue
            counted = cell.counted(topic, record.offset)
            if fact.replay:
                # A replay stays out of loss and lag; it only moves its delivery from dead-lettered to delivered.
                if not counted and fact.stages[0].kind == "delivered":
                    cell.replay(fact.stages[0].who, fact.epoch, fact.sequence)
                continue
            at = fact.stages[0]
            if not counted:
                cell.span(topic, record.offset)
                shown[cell, fact.stages, fact.epoch].append(fact.sequence)
                for name, value_us in self._durations(kind, headers, record.timestamp * 1000):
                    durations[cell, name].append(value_us)
                self.live.note(fact.pipe, at, record.timestamp)
                if kind == stage.RECEIPTS:
                    reason = headers.get(STATUS) or headers.get(REASON) or b"no answer"
                    self.live.outcome(fact.pipe, at, reason.decode("utf-8", "replace"), record.timestamp)
            if backlog is not None and record.offset < backlog.committed:
                passed[cell, at, fact.epoch].append(fact.sequence)
            elif backlog is not None:
                backlog.put(record.offset, record.timestamp, cell, at, fact.epoch, fact.sequence)
        self._enter(shown, passed, durations)

    def _enter(self, shown: Shown, passed: Passed, durations: Durations) -> None:
        for (cell, stages, epoch), sequences in shown.items():
            cell.show(stages, epoch, sequences)
        for (cell, at, epoch), sequences in passed.items():
            cell.pass_by(at, epoch, sequences)
        for (cell, name), values_us in durations.items():
            cell.measure(name, values_us)
            if name.startswith("end.accepted/"):
                self.live.lags(cell.pipe, values_us)

    def _durations(self, kind: str, headers: dict[str, bytes], append_us: int) -> Iterator[tuple[str, int]]:
        try:
            if kind in (stage.RAW, stage.NORMALIZED, stage.ENRICHED):
                yield from measures.of_hop(kind, headers, append_us)
                transit = self._transit.appended(kind, headers[SEQ], append_us)
                if transit is not None:
                    yield stage.READERS[kind] + ".transit", transit
            elif kind == stage.RECEIPTS:
                yield from measures.of_receipt(headers)
            before = _BEFORE.get(kind)
            if before is not None and IN in headers:
                transit = self._transit.fetched(before, headers[SEQ], int(headers[IN]))
                if transit is not None:
                    yield stage.READERS[before] + ".transit", transit
        except (KeyError, ValueError):
            return  # counted as an event all the same: its identity was good

    def _cell(self, topic: str, fact: Fact, offset: int) -> Cell | None:
        key = (fact.pipe, fact.minute)
        cell = self.cells.get(key)
        if cell is not None:
            return cell
        cell = Cell(*key)
        if fact.minute <= self.closed_minute:
            if offset < self._through.get(topic, 0):
                return None
            if (self.closed_minute - fact.minute) * 60 > self.rules.amend_s:
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
            cell = self._cell(stage.ACCEPTED, Fact(pipe, minute, epoch, first, (), False), offset)
            if cell is not None and not cell.counted(stage.ACCEPTED, offset):
                cell.show_range(Stage(stage.ACCEPTED), epoch, first, last)
