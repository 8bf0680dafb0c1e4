"""The ledger of one partition number over all topics: takes records and offset snapshots, returns closed minutes.

No input or output, no clock, no Kafka client: the caller supplies records, snapshots and the time.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.errors import NotAnEvent
from hifi_observe.ledger import ack_report, durations, stage
from hifi_observe.ledger.backlog import Backlog
from hifi_observe.ledger.closing import (
    ClosingRules,
    LakeRead,
    MinuteResult,
    OffsetSnapshot,
    close_minute,
    inspect_minute,
)
from hifi_observe.ledger.grouping import group_records
from hifi_observe.ledger.id_set import IdSet, union
from hifi_observe.ledger.ingest_activity import IngestActivity
from hifi_observe.ledger.open_events import OpenEvents
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.recent_activity import RecentActivity
from hifi_observe.ledger.record_batch import (
    ConsumedRecord,
    MinuteRecords,
    RecordColumns,
    RecordGroup,
    enrich_progress,
)
from hifi_observe.ledger.stage import EventStage

_MARKED_MINUTES = 7 * 1440 + 60
"""Minutes whose heartbeat gaps and answers a marker holds, at most: after a stop of a week."""
_KEPT_MINUTES = 8 * 1440
"""Minutes for which ingest's activity is kept."""
_STILL_OPEN = (stage.RETRY_IN, stage.RETRY_OUT, stage.PARKED)
"""Kinds of topics whose records show that a delivery has no outcome yet."""


class PartitionLedger:
    """The ledger of one partition number."""

    def __init__(self, partition: int, rules: ClosingRules) -> None:
        self.partition = partition
        self.rules = rules
        self.term = 0
        """Of its owner (`hifi_observe.minutes.terms`); 0: none."""
        self.pipe_minutes: dict[tuple[str, int], PipeMinute] = {}
        self.backlogs: dict[str, Backlog] = {}
        self.positions: dict[str, int] = {}
        """Topic to the next offset to read."""
        self.closed_minute = -1
        """The newest minute that was closed."""
        self.told_minute = -1
        """The newest minute whose gaps and answers of ingest a marker has; below `closed_minute` after the clock was
        set back, until those minutes end."""
        self._previous_told_minute = -1
        self._resumed_minute = -1
        """Ack reports of minutes up to this one were not all read since the restart."""
        self.reached_us = 0
        """The time up to which everything was read, microseconds since 1970 UTC."""
        self.foreign: Counter[str] = Counter()
        """Topic to records without the headers of hifi."""
        self.too_late: Counter[str] = Counter()
        """Topic to batches with records of minutes that are no longer amended."""
        self.ingest = IngestActivity()
        self.live = RecentActivity()
        self.open_events = OpenEvents()
        self._published_offsets: dict[str, int] = {}
        """Topic to the offset up to which closed minutes were published."""
        self._snapshot: OffsetSnapshot | None = None
        self.lake: LakeRead | None = None
        """Of the service lake, from the newest snapshot; None: no pipe has a table."""
        self._lake_backlog = Backlog(stage.LAKE)
        self._transit = durations.Transit()

    @classmethod
    def resume(
        cls,
        partition: int,
        rules: ClosingRules,
        marker: Mapping[str, Any],
        pipe_minutes: Iterable[PipeMinute],
    ) -> "PartitionLedger":
        """Continue after a restart from a marker and the closed minutes; read on from its restart points."""
        ledger = cls(partition, rules)
        ledger.closed_minute = int(marker["minute"])
        ledger.told_minute = int(marker.get("told", ledger.closed_minute))
        ledger._previous_told_minute = ledger._resumed_minute = ledger.told_minute
        ledger._published_offsets = dict(marker["through"])
        ledger.positions = dict(marker["restart"])
        ledger.ingest.first_ms, ledger.ingest.last_ms = marker.get("ack_reported", (0, 0))
        ledger.pipe_minutes = {
            (pipe_minute.pipe, pipe_minute.minute): pipe_minute for pipe_minute in pipe_minutes
        }
        ledger.open_events.restore(ledger.pipe_minutes.values())
        ledger.open_events.holds.load(marker.get("holds", {}))
        return ledger

    def marker(self) -> dict[str, Any]:
        """The state that a restart needs besides the closed minutes; write it after them."""
        first_minute = max(self._previous_told_minute + 1, self.told_minute - _MARKED_MINUTES)
        minutes = range(first_minute, self.told_minute + 1)
        gaps = {minute: self.ingest.gap_s(minute) for minute in minutes}
        answers = {minute: self.ingest.answers(minute) for minute in minutes}
        paused = {minute: self.ingest.paused(minute) for minute in minutes}
        return {
            "minute": self.closed_minute,
            "told": self.told_minute,
            "through": self._published_offsets,
            "restart": self.restart_points(),
            "ack_reported": (self.ingest.first_ms, self.ingest.last_ms),
            "gaps": {str(minute): gap_s for minute, gap_s in gaps.items() if gap_s is not None},
            "answers": {str(minute): counts for minute, counts in answers.items() if any(counts)},
            "paused": {str(minute): pipes for minute, pipes in paused.items() if pipes},
            "holds": self.open_events.holds.dump(),
        }

    def begin(self, snapshot: OffsetSnapshot) -> None:
        """Take a new snapshot: records below its committed offsets count as passed."""
        self._snapshot = snapshot
        self.open_events.holds.note_time(snapshot.taken_us)
        for topic, committed in snapshot.committed.items():
            if committed <= snapshot.ends.get(topic, committed):  # else it is of the topic before this one
                self._backlog(topic).commit(committed)
        parked_first = snapshot.parked_first
        for pipe_minute in self.pipe_minutes.values():
            if pipe_minute.lasts.get(stage.PARKED, parked_first) < parked_first:
                pipe_minute.pass_deleted(stage.PARKED, stage.RETRY_IN)
        self.lake = snapshot.lake
        if snapshot.lake is not None:
            self._lake_backlog.commit(snapshot.lake.committed)
        self._apply_ack_reports()

    @property
    def busy(self) -> bool:
        """Whether a snapshot was begun and is not settled yet."""
        return self._snapshot is not None

    @property
    def reached(self) -> bool:
        """Whether everything below the snapshot's end offsets was read."""
        return self._snapshot is not None and self._snapshot.reached(self.positions)

    def begin_again(self, topic: str, first_offset: int) -> None:
        """Read a topic from its first offset again: what it has now was not read. Drops the snapshot.

        Records that were counted before count as copies.
        """
        self._snapshot = None
        self.positions[topic] = first_offset
        self._published_offsets.pop(topic, None)
        self.backlogs.pop(topic, None)
        for pipe_minute in self.pipe_minutes.values():
            pipe_minute.begin_again(topic)
        if topic == stage.RAW:
            self.open_events.frontier.begin_again()
        elif topic == stage.ENRICHED:
            self._lake_backlog = Backlog(stage.LAKE)
        elif topic == stage.ACCEPTED:
            self.ingest.begin_again()

    def drop_snapshot(self) -> None:
        """Finish a snapshot without closing anything; what was passed stays passed."""
        if self._snapshot is not None:
            self.reached_us, self._snapshot = self._snapshot.taken_us, None

    def settle(self) -> list[MinuteResult]:
        """Close what is due at the snapshot that was reached, and amend what changed after its closing."""
        if self._snapshot is None:
            return []
        taken_us = self._snapshot.taken_us
        self.drop_snapshot()
        self.open_events.holds.note_time(taken_us)
        newest_minute = self.rules.newest_closable(taken_us)
        minute_ended = newest_minute > self.closed_minute
        if minute_ended:
            self.closed_minute = newest_minute
        if newest_minute > self.told_minute:
            self._previous_told_minute, self.told_minute = self.told_minute, newest_minute
        elif newest_minute < self.told_minute:
            # The clock was ahead: minutes that have not come yet were reported as without a heartbeat.
            self._previous_told_minute = self.told_minute = max(newest_minute, self._resumed_minute)
        minute_results = [
            close_minute(
                pipe_minute, self.pending, self.ingest, self._counted_offsets(), self._lake_destinations
            )
            for pipe_minute in self._due_minutes()
        ]
        if minute_ended:
            self._forget_old(taken_us)
        self._published_offsets = self._counted_offsets()
        self.ingest.forget(self.closed_minute - _KEPT_MINUTES)
        return minute_results

    def _due_minutes(self) -> list[PipeMinute]:
        """The minutes to close, and those to amend."""
        closed_minute = self.closed_minute
        return [
            pipe_minute
            for pipe_minute in self.pipe_minutes.values()
            if pipe_minute.dirty or (pipe_minute.open and pipe_minute.minute <= closed_minute)
        ]

    def _forget_old(self, taken_us: int) -> None:
        """Drop the minutes that can no longer change at the time of a snapshot."""
        for key, pipe_minute in list(self.pipe_minutes.items()):
            if not self.rules.forgettable(pipe_minute, taken_us):
                continue
            del self.pipe_minutes[key]
            self.open_events.forget(pipe_minute)
            if pipe_minute.unresolved and pipe_minute.may_end:
                hold_us = taken_us + round(self.rules.hold_s * MICROSECONDS)
                self.open_events.holds.give_up(pipe_minute.pipe, len(pipe_minute.unresolved), hold_us)

    def restart_points(self) -> dict[str, int]:
        """Topic to the offset from which a restart counts all open minutes and backlogs again."""
        points = self._counted_offsets()
        for pipe_minute in self.pipe_minutes.values():
            if pipe_minute.open:
                for topic, first_offset in pipe_minute.firsts.items():
                    points[topic] = min(first_offset, points.get(topic, first_offset))
        for topic, backlog in [*self.backlogs.items(), (stage.ENRICHED, self._lake_backlog)]:
            if backlog.head is not None:
                points[topic] = min(backlog.head, points.get(topic, backlog.head))
        first_report = self.ingest.first_offset(self.told_minute)
        if first_report is not None and stage.ACCEPTED in points:
            points[stage.ACCEPTED] = min(first_report, points[stage.ACCEPTED])
        return points

    def pending(self, pipe_minute: PipeMinute, event_stage: EventStage) -> IdSet:
        """Identities of a minute whose records of a stage are not committed past."""
        if event_stage.kind == stage.LAKE:
            return self._lake_backlog.holding(pipe_minute, EventStage(stage.ENRICHED))
        return union(
            backlog.holding(pipe_minute, event_stage)
            for topic, backlog in self.backlogs.items()
            if stage.kind_of(topic) == event_stage.kind
        )

    def look(self, pipe_minute: PipeMinute) -> MinuteResult:
        """The state of a minute as it is now, without closing it."""
        return inspect_minute(pipe_minute, self.pending, self._lake_destinations)

    def take(self, topic: str, records: Sequence[ConsumedRecord]) -> None:
        """Add records of a topic (named without the stream), in offset order."""
        if not records:
            return
        kind = stage.kind_of(topic)
        if kind == stage.ACCEPTED:
            self._take_ack_reports(topic, records)
        else:
            self._take_events(topic, kind, records)
        self.positions[topic] = records[-1].offset + 1

    def _take_ack_reports(self, topic: str, records: Sequence[ConsumedRecord]) -> None:
        for record in records:
            try:
                report = ack_report.parse(record.value)
                self.ingest.add(record.offset, record.timestamp, report)
                self.live.source_deleted(report.deleted, record.timestamp)
            except NotAnEvent:
                self.foreign[topic] += 1
        self._apply_ack_reports()

    def _take_events(self, topic: str, kind: str, records: Sequence[ConsumedRecord]) -> None:
        """Group the records, then apply whole groups."""
        backlog = self._backlog(topic) if kind in stage.READERS else None
        committed = backlog.committed if backlog is not None else 0
        lake = self.lake if kind == stage.ENRICHED else None
        if lake is not None:
            committed = min(committed, self._lake_backlog.committed)
        batch = group_records(kind, records, committed)
        if batch.foreign:
            self.foreign[topic] += batch.foreign
        if kind == stage.RAW:
            self.open_events.begin(records[0].offset, records[-1].offset + 1)
        for minute_records in batch.minutes.values():
            self._apply_minute(topic, kind, minute_records, committed)
        columns = batch.columns.without_discarded()
        if backlog is not None:
            backlog.put(columns)
            if lake is not None:
                self._lake_backlog.put(columns)
        elif kind == stage.RECEIPTS:
            self._apply_receipts(columns)
        elif kind == stage.DEAD_LETTER:
            self._apply_dead_letters(columns)
        if kind == stage.ENRICHED:
            self._note_enrich_progress(batch.last_raw_offset)
        self.live.newest_ms = max(self.live.newest_ms, records[-1].timestamp)

    def _apply_minute(self, topic: str, kind: str, records: MinuteRecords, committed: int) -> None:
        """Add the groups of one pipe and minute to it."""
        if not records.groups:
            return  # every record of it was foreign
        pipe_minute = self._pipe_minute(topic, records.pipe, records.minute, records.first_offset)
        if pipe_minute is None:
            self._note_unfollowed(kind, records)
            return
        passed_groups = [
            (group, passed_records) for group in records.groups if (passed_records := group.passed(committed))
        ]
        counted_offset = pipe_minute.counted_to(topic)
        for group in records.groups:
            group.bind(pipe_minute, counted_offset)
            # A replay is left out of loss and lag; it only moves its delivery from dead-lettered to delivered.
            for sequence in group.replayed_deliveries():
                pipe_minute.replay(group.stages[0].destination, group.epoch, sequence)
        fresh_groups = [group for group in records.groups if group.offsets]
        if fresh_groups:
            pipe_minute.span(topic, min(group.offsets[0] for group in fresh_groups))
            pipe_minute.span(topic, max(group.offsets[-1] for group in fresh_groups))
        if kind == stage.RAW:
            self._take_raw(pipe_minute, fresh_groups)
        for group in fresh_groups:
            self._add_group(pipe_minute, group)
        for group, sequences in passed_groups:
            self._pass_by(kind, pipe_minute, group, sequences)
        for revision, groups in _by_revision(fresh_groups).items():
            self._measure(kind, pipe_minute, revision, groups)

    def _measure(
        self, kind: str, pipe_minute: PipeMinute, revision: int, groups: Sequence[RecordGroup]
    ) -> None:
        """Measure groups of one revision. The lags of lake's deliveries are not among the live lags."""
        lake = self._lake_destinations
        lake_groups = (
            [group for group in groups if (pipe_minute.pipe, group.stages[0].destination) in lake]
            if lake
            else []
        )
        other_groups = [group for group in groups if group not in lake_groups] if lake_groups else groups
        if lake_groups:
            durations.measure(kind, pipe_minute, lake_groups, self._transit)
        lags = durations.measure(kind, pipe_minute, other_groups, self._transit) if other_groups else []
        if lags:
            self.live.add_lags(pipe_minute.pipe, revision, lags)

    def _pass_by(self, kind: str, pipe_minute: PipeMinute, group: RecordGroup, sequences: list[int]) -> None:
        pipe_minute.pass_by(group.stages[0], group.epoch, sequences)
        if kind == stage.ENRICHED and self.lake is not None:
            pipe_minute.pass_by(EventStage(stage.LAKE), group.epoch, sequences)

    def _add_group(self, pipe_minute: PipeMinute, group: RecordGroup) -> None:
        if group.watched and not group.backfill:
            pipe_minute.watch(group.revision, group.epoch, group.sequences, group.watched)
        if group.sizes:
            pipe_minute.weigh(group.epoch, group.sequences, group.sizes)
        pipe_minute.show(group.stages, group.epoch, group.sequences)
        self.live.note(pipe_minute.pipe, group.revision, group.stages[0], len(group.sequences))

    def _apply_receipts(self, columns: RecordColumns) -> None:
        """Update breakers, failure streaks and last successes.

        Of deliveries in a row with the same answer only the last one matters, so each group of them counts once.
        """
        sole_group = columns.sole_group
        if sole_group is not None and sole_group.last_counts:
            if columns.offsets and columns.offsets[-1] >= sole_group.counted_offset:
                self._apply_answers({sole_group: columns.append_ms[-1]})
            return
        delivered_ms: dict[RecordGroup, int] = {}
        """Group to append time, in the order of the newest receipts."""
        for offset, append_ms, group in zip(columns.offsets, columns.append_ms, columns.groups, strict=True):
            if offset < group.counted_offset:
                continue
            if group.last_counts:
                delivered_ms.pop(group, None)
                delivered_ms[group] = append_ms
                continue
            if delivered_ms:
                self._apply_answers(delivered_ms)
                delivered_ms.clear()
            self._apply_answers({group: append_ms})
        self._apply_answers(delivered_ms)

    def _apply_answers(self, newest_ms: Mapping[RecordGroup, int]) -> None:
        """Apply one receipt of each group, appended at that time."""
        for group, append_ms in newest_ms.items():
            if group.pipe_minute is None:
                continue
            pipe, event_stage = group.pipe_minute.pipe, group.stages[0]
            self.live.breaker(pipe, event_stage, group.answer, append_ms)
            if event_stage.kind == "delivered":
                self.live.success(pipe, event_stage.destination, append_ms)
            else:
                self.live.outcome(pipe, event_stage, group.answer.text, append_ms)

    def _apply_dead_letters(self, columns: RecordColumns) -> None:
        for offset, append_ms, group in zip(columns.offsets, columns.append_ms, columns.groups, strict=True):
            if offset >= group.counted_offset and group.pipe_minute is not None:
                self.live.dead_letter(group.pipe_minute.pipe, append_ms)
        self._note_enrich_progress(enrich_progress(columns))

    def _note_enrich_progress(self, raw_offset: int) -> None:
        """Enrich commits at the end of a Spark batch; its output shows how far it is before that."""
        if raw_offset >= 0:
            self._backlog(stage.NORMALIZED).processed(raw_offset)

    def _pipe_minute(self, topic: str, pipe: str, minute: int, offset: int) -> PipeMinute | None:
        """The pipe minute of a record; None if it is no longer amended."""
        key = (pipe, minute)
        pipe_minute = self.pipe_minutes.get(key)
        if pipe_minute is not None:
            return pipe_minute
        pipe_minute = PipeMinute(*key)
        if minute <= self.closed_minute:
            if offset < self._published_offsets.get(topic, 0):
                return None
            if (self.closed_minute - minute) * 60 > self.rules.amend_s:
                self.too_late[topic] += 1
                return None
            pipe_minute.open = False
        self.pipe_minutes[key] = pipe_minute
        return pipe_minute

    def _take_raw(self, pipe_minute: PipeMinute, groups: Sequence[RecordGroup]) -> None:
        for group in groups:
            if group.backfill:
                pipe_minute.backfill.add(group.epoch, group.sequences)
            self.open_events.add(pipe_minute, group)

    def _note_unfollowed(self, kind: str, records: MinuteRecords) -> None:
        """Events of a minute that is no longer amended hold the watermark, unless they were counted before."""
        if kind in _STILL_OPEN:
            self.open_events.holds.prolong(records.pipe, self.rules.hold_s)
        if kind != stage.RAW:
            return
        counted_offset = self._published_offsets.get(stage.RAW, 0)
        for group in records.groups:
            fresh_count = sum(1 for offset in group.offsets if offset >= counted_offset)
            if fresh_count:
                self.open_events.holds.unfollowed(records.pipe, fresh_count, self.rules.follow_s)

    @property
    def _lake_destinations(self) -> frozenset[tuple[str, str]]:
        return frozenset() if self.lake is None else self.lake.destinations

    def _counted_offsets(self) -> dict[str, int]:
        """Topic to the next offset that is not in the pipe minutes yet."""
        first_waiting = self.ingest.first_waiting
        return (
            dict(self.positions)
            if first_waiting is None
            else self.positions | {stage.ACCEPTED: first_waiting}
        )

    def _backlog(self, topic: str) -> Backlog:
        backlog = self.backlogs.get(topic)
        if backlog is None:
            backlog = self.backlogs[topic] = Backlog()
        return backlog

    def _apply_ack_reports(self) -> None:
        """Apply only the ack reports below the snapshot: `raw` is read at least as far as these name events."""
        if self._snapshot is None:
            return
        for acknowledged in self.ingest.take(self._snapshot.ack_reports_end):
            pipe_minute = self._pipe_minute(
                stage.ACCEPTED, acknowledged.pipe, acknowledged.minute, acknowledged.offset
            )
            if pipe_minute is not None and acknowledged.offset >= pipe_minute.counted_to(stage.ACCEPTED):
                pipe_minute.show_range(
                    EventStage(stage.ACCEPTED), acknowledged.epoch, acknowledged.first, acknowledged.last
                )
                self.open_events.reported(pipe_minute)


def _by_revision(groups: list[RecordGroup]) -> dict[int, list[RecordGroup]]:
    """The groups of each revision; usually there is one."""
    groups_by_revision: dict[int, list[RecordGroup]] = {}
    for group in groups:
        groups_by_revision.setdefault(group.revision, []).append(group)
    return groups_by_revision
