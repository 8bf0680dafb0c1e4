"""Parse the records of a fetch into events. No I/O."""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from aiokafka import ConsumerRecord

from hifi.record.fields import fields, number
from hifi.record.headers import (
    AMBIGUOUS,
    ATTEMPT,
    DESTINATION,
    DUE,
    PASS,
    REPLAY,
    SERVICE,
    STARTED,
    TIME,
    TO,
    TRACEPARENT,
)
from hifi.record.hop import RAW_AT, TO_AT, hop, hop_header, hop_text, split_hop
from hifi.record.identity import (
    ACCEPTED_AT,
    PIPE_AT,
    REVISION_OFFSET_AT,
    SEQ_AT,
    identity,
    identity_header,
    split_identity,
)
from hifi.runtime.errors import NotAnEvent
from hifi_egest.dedup.copy_key import RAW_LOG, replay_key, retry_log, work_key
from hifi_egest.delivery.delivery import (
    ENRICHED,
    NO_EARLIER_ATTEMPTS,
    EarlierAttempts,
    EventRecord,
    SourcePartition,
)

_COPIED: Final = frozenset({TIME, TRACEPARENT, REPLAY})
"""Headers that receipts have from their event, beside the header `hifi`."""


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
    identity_texts, hop_texts = split_identity(identity_header(headers)), split_hop(hop_header(headers))
    if len(hop_texts) <= TO_AT:
        raise NotAnEvent(f"the field {TO} is missing")
    seq, raw, destinations = identity_texts[SEQ_AT], hop_texts[RAW_AT], hop_texts[TO_AT]
    log_offset = int(raw) if raw else -1
    copied = [header for header in headers if header[0] in _COPIED]
    if len(copied) > 1 or (copied and copied[0][0] != TIME):
        by_name = dict(headers)
        key, log = replay_key(seq, log_offset, by_name.get(REPLAY), by_name.get(SERVICE))
    else:
        key, log = seq, RAW_LOG if log_offset >= 0 else None
    names = destinations.split(b",")
    return EventRecord(
        record,
        partition,
        hop_text(fetched_us, log_offset),
        copied,
        identity_texts[PIPE_AT].decode("ascii"),
        seq,
        int(identity_texts[ACCEPTED_AT]),
        fetched_us,
        names if len(names) == 1 else list(dict.fromkeys(names)),
        int(identity_texts[REVISION_OFFSET_AT]),
        0,
        NO_EARLIER_ATTEMPTS,
        key,
        log,
        log_offset,
    )


def _retried(partition: SourcePartition, record: ConsumerRecord, fetched_us: int) -> EventRecord:
    headers = record.headers
    event_identity, event_hop, values = identity(headers), hop(headers), fields(headers)
    destination = values.get(DESTINATION, b"")
    if not destination or b";" in destination:
        raise NotAnEvent(f"the header {DESTINATION} is missing, or has a semicolon")
    due = values.get(DUE)
    log, log_offset = retry_log(values)
    return EventRecord(
        record,
        partition,
        hop_text(fetched_us, event_hop.raw),
        [header for header in headers if header[0] in _COPIED],
        event_identity.pipe,
        event_identity.seq,
        event_identity.accepted_us,
        fetched_us,
        [destination],
        event_identity.revision_offset,
        int(due) if due is not None and due.isdigit() else 0,
        EarlierAttempts(
            attempts=number(values, ATTEMPT, 0),
            started_us=number(values, STARTED, 0),
            passes=number(values, PASS, 0),
            ambiguous=number(values, AMBIGUOUS, 0),
        ),
        work_key(partition.source, values),
        log,
        log_offset,
    )
