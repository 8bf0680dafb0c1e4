"""Parse a fetched batch of one topic and group its records by pipe, minute, stages, epoch and revision. Pure.

This is observe's hot path: at 2,000 events a second about 8,000 records a second pass here. One loop parses and groups;
everything after it works on whole groups. A record adds numbers to the lists of its group and no object of its own.
"""

from collections.abc import Sequence
from typing import Final

from hifi.record import event
from hifi.record.event import HOP, IDENTITY, RECEIPT, RECEIPT_FIELDS, REPLAY, TIME
from hifi.runtime.errors import NotAnEvent
from hifi_observe.ledger import stage
from hifi_observe.ledger.breaker_reports import ReceiptAnswer
from hifi_observe.ledger.record_batch import (
    ConsumedRecord,
    MinuteRecords,
    RecordBatch,
    RecordGroup,
)

_FORMAT: Final = b"%d" % event.FORMAT
_IDENTITY_PARTS: Final = 1 + len(event.IDENTITY_FIELDS)
_HOPS: Final = frozenset((stage.RAW, stage.NORMALIZED, stage.ENRICHED))
"""Kinds of topics that hold events on their way."""
_RECEIPT_PARTS: Final = len(RECEIPT_FIELDS)
_OUTCOME: Final = RECEIPT_FIELDS.index(event.OUTCOME)
_DESTINATION: Final = RECEIPT_FIELDS.index(event.DESTINATION)
_PASS: Final = RECEIPT_FIELDS.index(event.PASS)
_STATUS: Final = RECEIPT_FIELDS.index(event.STATUS)
_SENT: Final = RECEIPT_FIELDS.index(event.SENT)
_ANSWERED: Final = RECEIPT_FIELDS.index(event.ANSWERED)
_BREAKER: Final = RECEIPT_FIELDS.index(event.BREAKER)
_REASON: Final = RECEIPT_FIELDS.index(event.REASON)
_BACKFILL: Final = b";" + event.BACKFILL
_BACKFILL_LENGTH: Final = len(_BACKFILL)
_NO_RAW_OFFSET: Final = 2**62
_NO_HOP: Final = [b""]


class _Place:
    """A pipe, minute, epoch and revision; backfill and other events apart."""

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


def _new_place(
    batch: RecordBatch,
    pipe: bytes,
    minute: bytes,
    epoch: bytes,
    revision: bytes,
    backfill: bool,
    offset: int,
) -> _Place:
    """The place of the record at an offset, which may begin a new minute of its pipe.

    Raises:
        ValueError: a field is malformed.
    """
    records = batch.minutes.get((pipe, minute))
    if records is None:
        records = MinuteRecords(pipe.decode("ascii"), int(minute), offset)
        batch.minutes[pipe, minute] = records
    return _Place(epoch.decode("ascii", "replace"), int(revision), backfill, records)


_NOWHERE: Final = _Place("", 0, False, MinuteRecords("", 0, 0))


def known_part(identity: bytes) -> bytes:
    """The header `hifi` without the fields that a later release appended."""
    return b";".join(identity.split(b";", _IDENTITY_PARTS)[:_IDENTITY_PARTS])


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
    members, raw_offsets = columns.groups, columns.raw_offsets
    is_hop, is_receipt, is_enriched = kind in _HOPS, kind == stage.RECEIPTS, kind == stage.ENRICHED
    with_raw_offset = kind in (stage.NORMALIZED, stage.DEAD_LETTER)
    unknown_raw_offset = -1 if kind == stage.DEAD_LETTER else _NO_RAW_OFFSET
    plain = (stage.EventStage(kind),)
    stages_of = stage.stage_reader(kind)
    places: dict[tuple[bytes, bytes, bytes, bytes, bool], _Place] = {}
    last_common, accepted_us, place = b"", 0, _NOWHERE
    time_at = 2
    """Where the header `ce_time` was last: usually it is there again."""
    parts: list[bytes] = []
    watch = b""
    for record in records:
        headers = record.headers
        offset = record.offset
        try:
            name, identity = headers[0]
            common, _, text = identity.rpartition(b":")
            backfill = False
            digits = text.isdigit()
            if not digits and text.endswith(_BACKFILL):
                text = text[:-_BACKFILL_LENGTH]
                backfill, digits = True, text.isdigit()
            if common != last_common or backfill != place.backfill or name != IDENTITY or not digits:
                # The events of a request have this part in common.
                if name != IDENTITY:
                    raise NotAnEvent(f"the first header is not {IDENTITY}")
                last_common = common
                if identity.count(b";") >= _IDENTITY_PARTS + backfill:
                    last_common = b""
                    common, _, text = known_part(identity).rpartition(b":")
                    backfill = identity.split(b";")[_IDENTITY_PARTS] == event.BACKFILL
                if not text.isdigit():
                    raise NotAnEvent(f"the header {IDENTITY} has no sequence")
                fields = common.split(b";")
                if fields[0] != _FORMAT:
                    raise NotAnEvent(f"the header {IDENTITY} has a format other than {event.FORMAT}")
                accepted_us = int(fields[4])
                key = fields[1], fields[5], fields[6], fields[2], backfill
                found = places.get(key)
                if found is None:
                    found = places[key] = _new_place(batch, *key, offset)
                place = found
            sequence = int(text)
            hop = headers[1][1].split(b";") if headers[1][0] == HOP else _NO_HOP
            if is_hop:
                to = hop[2] if is_enriched and len(hop) > 2 else b""
                watch = hop[3] if is_enriched and len(hop) > 3 else b""
                # Every record of a group has watched fields, or none has.
                what = (to, True) if watch else to
                group = place.groups.get(what)
                if group is None:
                    stages = stage.wanted(to) if is_enriched else plain
                    group = place.add(what, RecordGroup(stages, place.epoch, measured=True))
            elif is_receipt:
                if headers[2][0] != RECEIPT:
                    raise NotAnEvent(f"the third header is not {RECEIPT}")
                parts = headers[2][1].split(b";")
                group = _receipt_group(place, parts)
            else:
                stages = stages_of(dict(headers))
                group = place.groups.get(stages)
                if group is None:
                    group = place.add(stages, RecordGroup(stages, place.epoch))
        except (IndexError, KeyError, ValueError, NotAnEvent):
            last_common = b""
            batch.foreign += 1
            continue
        replayed = False
        for name, value in headers:
            if name == REPLAY:
                replayed = value != b"0"
        if replayed:
            group.replayed.append((offset, sequence))
            continue
        append_ms = record.timestamp
        group.offsets.append(offset)
        group.sequences.append(sequence)
        if watch:
            group.watched.append(watch)
        times = group.times
        if times is not None:
            if time_at >= len(headers) or headers[time_at][0] != TIME:
                time_at = _place_of_time(headers)
            times.identities.append(identity)
            times.append_ms.append(append_ms)
            times.accepted_us.append(accepted_us)
            times.event_times.append(headers[time_at][1] if time_at else None)
            try:
                times.in_us.append(int(hop[0]))
                if is_receipt:
                    times.sent_us.append(int(parts[_SENT]))
                    times.answered_us.append(int(parts[_ANSWERED]))
            except ValueError:
                times.mark_malformed(is_receipt)
        if offset >= committed:
            offsets.append(offset)
            append_times.append(append_ms)
            sequences.append(sequence)
            members.append(group)
            if with_raw_offset:
                raw_offsets.append(_raw_offset(hop, unknown_raw_offset))
    if is_enriched and records:
        batch.last_raw_offset = _last_raw_offset(records[-1])
    return batch


def _receipt_group(place: _Place, parts: list[bytes]) -> RecordGroup:
    """The group of a receipt with these fields; missing ones are added to the list, empty."""
    if len(parts) < _RECEIPT_PARTS:
        parts += [b""] * (_RECEIPT_PARTS - len(parts))
    key = (
        parts[_OUTCOME],
        parts[_DESTINATION],
        parts[_PASS],
        parts[_STATUS],
        parts[_BREAKER],
        parts[_REASON],
    )
    group = place.groups.get(key)
    if group is None:
        stages = stage.receipt(parts[_DESTINATION], parts[_OUTCOME], parts[_PASS])
        answer = ReceiptAnswer(parts[_STATUS], parts[_REASON], parts[_BREAKER])
        measured = stages[0].kind == "delivered"
        group = place.add(key, RecordGroup(stages, place.epoch, answer, measured=measured))
    return group


def _place_of_time(headers: Sequence[tuple[str, bytes]]) -> int:
    """Index of the header `ce_time`; 0 if there is none."""
    for index, (name, _) in enumerate(headers):
        if name == TIME:
            return index
    return 0


def _raw_offset(hop: list[bytes], default: int) -> int:
    return int(hop[1]) if len(hop) > 1 and hop[1].isdigit() else default


def _last_raw_offset(record: ConsumedRecord) -> int:
    """The offset in `raw` of the last record of `enriched`; -1 for a replay, and where it is unknown."""
    headers = dict(record.headers)
    return -1 if REPLAY in headers else _raw_offset(headers.get(HOP, b"").split(b";"), -1)
