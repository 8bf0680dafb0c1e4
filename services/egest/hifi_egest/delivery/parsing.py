"""Parse the records of a fetch into events. No I/O."""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from aiokafka import ConsumerRecord

from hifi.record.event import (
    AMBIGUOUS,
    ATTEMPT,
    DESTINATION,
    DUE,
    FORMAT,
    HOP,
    IDENTITY,
    PASS,
    REPLAY,
    SERVICE,
    STARTED,
    TIME,
    TO,
    TRACEPARENT,
    fields,
    hop,
    identity,
    number,
)  # fmt: skip
from hifi.runtime.errors import NotAnEvent
from hifi_egest.dedup.copy_key import RAW_LOG, replay_key, retry_log, work_key
from hifi_egest.delivery.event_record import NO_EARLIER_ATTEMPTS, EarlierAttempts, EventRecord
from hifi_egest.delivery.partition import ENRICHED, SourcePartition

_COPIED: Final = frozenset({TIME, TRACEPARENT, REPLAY})
"""Headers that receipts have from their event, beside the header `hifi`."""
_FORMAT: Final = b"%d" % FORMAT


class InvalidRecord(NamedTuple):
    """A record that hifi did not write, and why."""

    record: ConsumerRecord
    error: NotAnEvent


ParsedRecord: TypeAlias = EventRecord | InvalidRecord


def parse(
    partition: SourcePartition, records: Iterable[ConsumerRecord], fetched_us: int
) -> list[ParsedRecord]:
    """Parse records.

    Args:
        partition: that they were read from.
        records: as read.
        fetched_us: when they were fetched, microseconds since 1970 UTC.

    Returns:
        One result for each record, in their order.
    """
    read = _enriched if partition.source == ENRICHED else _retried
    parsed: list[ParsedRecord] = []
    for record in records:
        try:
            parsed.append(read(partition, record, fetched_us))
        except NotAnEvent as error:
            parsed.append(InvalidRecord(record, error))
    return parsed


def _enriched(partition: SourcePartition, record: ConsumerRecord, fetched_us: int) -> EventRecord:
    headers = record.headers
    # The two packed headers are split here, once, rather than by hifi.event: this runs for each event.
    try:
        (first, packed), (second, packed_hop) = headers[0], headers[1]
        identity_fields, hop_fields = packed.split(b";"), packed_hop.split(b";")
        if first != IDENTITY or second != HOP or identity_fields[0] != _FORMAT:
            raise ValueError(first)
        pipe = identity_fields[1].decode("ascii")
        revision_offset, accepted_us, seq = (
            int(identity_fields[3]),
            int(identity_fields[4]),
            identity_fields[6],
        )
        raw = hop_fields[1]
        log_offset = int(raw) if raw else -1
        to = hop_fields[2]
    except (IndexError, ValueError):
        identity(headers)
        hop(headers)  # one of the two says what is wrong
        raise NotAnEvent(f"the field {TO} is missing") from None
    copied = [header for header in headers if header[0] in _COPIED]
    if len(copied) > 1 or (copied and copied[0][0] != TIME):
        found = dict(headers)
        key, log = replay_key(seq, log_offset, found.get(REPLAY), found.get(SERVICE))
    else:
        key, log = seq, RAW_LOG if log_offset >= 0 else None
    return EventRecord(
        record,
        partition,
        b"%d;%b" % (fetched_us, raw),
        copied,
        pipe,
        seq,
        accepted_us,
        fetched_us,
        to.split(b",") if b"," not in to else list(dict.fromkeys(to.split(b","))),
        revision_offset,
        0,
        NO_EARLIER_ATTEMPTS,
        key,
        log,
        log_offset,
    )


def _retried(partition: SourcePartition, record: ConsumerRecord, fetched_us: int) -> EventRecord:
    headers = record.headers
    known, its_hop, found = identity(headers), hop(headers), fields(headers)
    destination = found.get(DESTINATION, b"")
    if not destination or b";" in destination:
        raise NotAnEvent(f"the header {DESTINATION} is missing, or has a semicolon")
    due = found.get(DUE)
    log, log_offset = retry_log(found)
    return EventRecord(
        record,
        partition,
        b"%d;%b" % (fetched_us, b"%d" % its_hop.raw if its_hop.raw >= 0 else b""),
        [header for header in headers if header[0] in _COPIED],
        known.pipe,
        known.seq,
        known.accepted_us,
        fetched_us,
        [destination],
        known.revision_offset,
        int(due) if due is not None and due.isdigit() else 0,
        EarlierAttempts(
            attempts=number(found, ATTEMPT, 0),
            started_us=number(found, STARTED, 0),
            passes=number(found, PASS, 0),
            ambiguous=number(found, AMBIGUOUS, 0),
        ),
        work_key(partition.source, found),
        log,
        log_offset,
    )
