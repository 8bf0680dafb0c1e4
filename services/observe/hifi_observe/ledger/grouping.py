"""Parse a fetched batch of one topic and group its records by pipe, minute, stages, epoch and revision. Pure.

This is observe's hot path: at 2,000 events a second about 8,000 records a second pass here. One loop parses and groups;
everything after it works on whole groups. A record adds numbers to the lists of its group and no object of its own.
"""

from collections.abc import Sequence
from typing import Final

from hifi.record.headers import REPLAY, TIME
from hifi.record.heartbeat import is_heartbeat
from hifi.record.hop import IN_AT, TO_AT, WATCH_AT, raw_offset, split_hop_unchecked
from hifi.record.identity import MINUTE_AT, PIPE_AT, REVISION_AT, IdentityReader
from hifi.record.receipt import (
    ANSWERED_AT,
    BREAKER_AT,
    DESTINATION_AT,
    OUTCOME_AT,
    PASS_AT,
    REASON_AT,
    SENT_AT,
    STATUS_AT,
    split_receipt,
)
from hifi.runtime.errors import NotAnEvent
from hifi_observe.ledger import stage
from hifi_observe.ledger.breaker_reports import ReceiptAnswer
from hifi_observe.ledger.record_batch import (
    ConsumedRecord,
    MinuteRecords,
    RecordBatch,
    RecordGroup,
)

_HOPS: Final = frozenset((stage.RAW, stage.NORMALIZED, stage.ENRICHED))
"""Kinds of topics that hold events on their way."""
_NO_RAW_OFFSET: Final = 2**62
UNREADABLE: Final = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError, NotAnEvent)
"""Errors of reading a record that no service of hifi wrote."""


class _EpochGroups:
    """Groups of one pipe, minute, epoch and revision; backfill and other events apart."""

    __slots__ = ("backfill", "epoch", "groups", "records", "revision")

    def __init__(self, epoch: str, revision: int, backfill: bool, records: MinuteRecords) -> None:
        self.epoch = epoch
        self.revision = revision
        self.backfill = backfill
        self.records = records
        """Of the pipe and minute."""
        self.groups: dict[object, RecordGroup] = {}
        """By what else the stages depend on."""

    def add(self, key: object, group: RecordGroup) -> RecordGroup:
        """Add a group; returns it."""
        group.revision = self.revision
        if self.backfill:
            group.backfill, group.times = True, None
        self.groups[key] = group
        self.records.groups.append(group)
        return group


def _new_epoch_groups(batch: RecordBatch, identity: IdentityReader, offset: int) -> _EpochGroups:
    """Groups, still none, for the record at an offset, which may begin a new minute of its pipe."""
    pipe, minute = identity.texts[PIPE_AT], identity.texts[MINUTE_AT]
    records = batch.minutes.get((pipe, minute))
    if records is None:
        records = MinuteRecords(pipe.decode("ascii"), int(minute), offset)
        batch.minutes[pipe, minute] = records
    epoch, revision = identity.epoch.decode("ascii"), int(identity.texts[REVISION_AT])
    return _EpochGroups(epoch, revision, identity.backfill, records)


_NO_GROUPS: Final = _EpochGroups("", 0, False, MinuteRecords("", 0, 0))


def group_records(  # noqa: C901, PLR0912, PLR0915 - one loop without calls: they cost more than the parsing
    kind: str, records: Sequence[ConsumedRecord], committed: int
) -> RecordBatch:
    """Parse and group the records of a batch.

    Args:
        kind: of the topic.
        records: in offset order.
        committed: offset that the reading service committed; only records from here on are put into `columns`.
    """
    batch = RecordBatch()
    columns = batch.columns
    offsets, append_times, sequences = columns.offsets, columns.append_ms, columns.sequences
    record_groups, raw_offsets = columns.groups, columns.raw_offsets
    is_hop, is_receipt, is_enriched = kind in _HOPS, kind == stage.RECEIPTS, kind == stage.ENRICHED
    is_raw = kind == stage.RAW
    may_be_heartbeat = kind in (stage.NORMALIZED, stage.ENRICHED)
    with_raw_offset = kind in (stage.NORMALIZED, stage.DEAD_LETTER)
    unknown_raw_offset = -1 if kind == stage.DEAD_LETTER else _NO_RAW_OFFSET
    plain_stages = (stage.EventStage(kind),)
    stages_of = stage.stage_reader(kind)
    groups_by_key: dict[tuple[bytes, bytes, bytes, bytes, bool], _EpochGroups] = {}
    identity = IdentityReader()
    epoch_groups = _NO_GROUPS
    time_index = 2
    """Index of the header `ce_time` in the previous record: usually it is the same again."""
    receipt: list[bytes] = []
    watch_header = b""
    for record in records:
        headers: Sequence[tuple[str, bytes | None]] = record.headers
        offset = record.offset
        try:
            if identity.read(headers):
                identity_texts = identity.texts
                key = (
                    identity_texts[PIPE_AT],
                    identity_texts[MINUTE_AT],
                    identity.epoch,
                    identity_texts[REVISION_AT],
                    identity.backfill,
                )
                same_key_groups = groups_by_key.get(key)
                if same_key_groups is None:
                    same_key_groups = groups_by_key[key] = _new_epoch_groups(batch, identity, offset)
                epoch_groups = same_key_groups
            hop = split_hop_unchecked(headers)
            if is_hop:
                to_header = hop[TO_AT] if is_enriched and len(hop) > TO_AT else b""
                watch_header = hop[WATCH_AT] if is_enriched and len(hop) > WATCH_AT else b""
                # Every record of a group has watched fields, or none has.
                group_key = (to_header, True) if watch_header else to_header
                group = epoch_groups.groups.get(group_key)
                if group is None:
                    stages = stage.wanted(to_header) if is_enriched else plain_stages
                    group = epoch_groups.add(
                        group_key, RecordGroup(stages, epoch_groups.epoch, measured=True)
                    )
            elif is_receipt:
                receipt = split_receipt(headers)
                group = _receipt_group(epoch_groups, receipt)
            else:
                stages = stages_of({name: value for name, value in headers if value is not None})
                group = epoch_groups.groups.get(stages)
                if group is None:
                    group = epoch_groups.add(stages, RecordGroup(stages, epoch_groups.epoch))
        except UNREADABLE:
            batch.foreign += not (may_be_heartbeat and _is_heartbeat(headers))
            continue
        is_replay = False
        for name, value in headers:
            if name == REPLAY:
                is_replay = value != b"0"
        if is_replay:
            group.replayed.append((offset, identity.sequence))
            continue
        append_ms = record.timestamp
        group.offsets.append(offset)
        group.sequences.append(identity.sequence)
        if watch_header:
            group.watched.append(watch_header)
        if is_raw:
            group.sizes.append(len(record.value or b""))
        times = group.times
        if times is not None:
            if time_index >= len(headers) or headers[time_index][0] != TIME:
                time_index = _time_index(headers)
            times.identities.append(headers[0][1] or b"")
            times.append_ms.append(append_ms)
            times.accepted_us.append(identity.accepted_us)
            times.event_times.append(headers[time_index][1] if time_index else None)
            try:
                times.in_us.append(int(hop[IN_AT]))
                if is_receipt:
                    times.sent_us.append(int(receipt[SENT_AT]))
                    times.answered_us.append(int(receipt[ANSWERED_AT]))
            except ValueError:
                times.mark_malformed(is_receipt)
        if offset >= committed:
            offsets.append(offset)
            append_times.append(append_ms)
            sequences.append(identity.sequence)
            record_groups.append(group)
            if with_raw_offset:
                raw_offsets.append(raw_offset(hop, unknown_raw_offset))
    batch_groups = [group for minute_records in batch.minutes.values() for group in minute_records.groups]
    if len(batch_groups) == 1:
        columns.sole_group = batch_groups[0]
    if is_enriched and records:
        batch.last_raw_offset = _last_raw_offset(records[-1])
    return batch


def _is_heartbeat(headers: Sequence[tuple[str, bytes | None]]) -> bool:
    """Whether a record that is not an event is a heartbeat, not a foreign one."""
    try:
        return is_heartbeat(headers)
    except UNREADABLE:
        return False


def _receipt_group(epoch_groups: _EpochGroups, receipt: list[bytes]) -> RecordGroup:
    """The group of a receipt with these fields."""
    key = (
        receipt[OUTCOME_AT],
        receipt[DESTINATION_AT],
        receipt[PASS_AT],
        receipt[STATUS_AT],
        receipt[BREAKER_AT],
        receipt[REASON_AT],
    )
    group = epoch_groups.groups.get(key)
    if group is None:
        stages = stage.receipt(receipt[DESTINATION_AT], receipt[OUTCOME_AT], receipt[PASS_AT])
        answer = ReceiptAnswer(receipt[STATUS_AT], receipt[REASON_AT], receipt[BREAKER_AT])
        is_measured = stages[0].kind == "delivered"
        group = epoch_groups.add(key, RecordGroup(stages, epoch_groups.epoch, answer, measured=is_measured))
    return group


def _time_index(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Index of the header `ce_time`; 0 if there is none."""
    for index, (name, _) in enumerate(headers):
        if name == TIME:
            return index
    return 0


def _last_raw_offset(record: ConsumedRecord) -> int:
    """The offset in `raw` of the last record of `enriched`; -1 for a replay, and where it is unknown."""
    headers: Sequence[tuple[str, bytes | None]] = record.headers
    try:
        if any(name == REPLAY for name, _ in headers):
            return -1
        return raw_offset(split_hop_unchecked(headers), -1)
    except UNREADABLE:
        return -1
