"""Parse the records of a fetch into events. No I/O."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from aiokafka import ConsumerRecord

from hifi.record.fields import check_values, fields
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
from hifi.record.heartbeat import is_heartbeat
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
from hifi.record.packed_text import is_number
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


class Heartbeat(NamedTuple):
    """A record for steps (`hifi.record.heartbeat`), of which there is nothing to deliver."""

    record: ConsumerRecord


ParsedRecord: TypeAlias = EventRecord | InvalidRecord | Heartbeat


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
    parse_record = _parse_enriched if partition.source == ENRICHED else _parse_retried
    parsed_records: list[ParsedRecord] = []
    for record in records:
        try:
            check_values(record.headers)
            parsed_records.append(parse_record(partition, record, fetched_us))
        except NotAnEvent as error:
            is_passed = partition.source == ENRICHED and is_heartbeat(record.headers)
            parsed_records.append(Heartbeat(record) if is_passed else InvalidRecord(record, error))
    return parsed_records


def _parse_enriched(partition: SourcePartition, record: ConsumerRecord, fetched_us: int) -> EventRecord:
    headers = record.headers
    identity_texts, hop_texts = split_identity(identity_header(headers)), split_hop(hop_header(headers))
    if len(hop_texts) <= TO_AT:
        raise NotAnEvent(f"the field {TO} is missing")
    seq, raw_text, destinations_text = identity_texts[SEQ_AT], hop_texts[RAW_AT], hop_texts[TO_AT]
    log_offset = int(raw_text) if raw_text else -1
    destination_names = destinations_text.split(b",")
    copied_headers = [header for header in headers if header[0] in _COPIED]
    if len(copied_headers) > 1 or (copied_headers and copied_headers[0][0] != TIME):
        headers_by_name = dict(headers)
        replay, service = headers_by_name.get(REPLAY), headers_by_name.get(SERVICE)
        key, log = replay_key(seq, log_offset, replay, service, destination_names[0])
    else:
        key, log = seq, RAW_LOG if log_offset >= 0 else None
    return EventRecord(
        record,
        partition,
        hop_text(fetched_us, log_offset),
        copied_headers,
        identity_texts[PIPE_AT].decode("ascii"),
        seq,
        int(identity_texts[ACCEPTED_AT]),
        fetched_us,
        destination_names if len(destination_names) == 1 else list(dict.fromkeys(destination_names)),
        int(identity_texts[REVISION_OFFSET_AT]),
        0,
        NO_EARLIER_ATTEMPTS,
        key,
        log,
        log_offset,
    )


def _parse_retried(partition: SourcePartition, record: ConsumerRecord, fetched_us: int) -> EventRecord:
    headers = record.headers
    event_identity, event_hop, header_fields = identity(headers), hop(headers), fields(headers)
    destination = header_fields.get(DESTINATION, b"")
    if not _is_destination(destination):
        raise NotAnEvent(f"the header {DESTINATION} is missing, is not UTF-8, or has a semicolon")
    due_text = header_fields.get(DUE, b"")
    log, log_offset = retry_log(header_fields)
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
        int(due_text) if is_number(due_text) else 0,
        EarlierAttempts(
            attempts=_count(header_fields, ATTEMPT),
            started_us=_count(header_fields, STARTED),
            passes=_count(header_fields, PASS),
            ambiguous=_count(header_fields, AMBIGUOUS),
        ),
        work_key(partition.source, header_fields),
        log,
        log_offset,
    )


def _is_destination(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return bool(text) and b";" not in text


def _count(header_fields: Mapping[str, bytes], name: str) -> int:
    """A field as a whole number; 0: it is missing."""
    text = header_fields.get(name, b"0")
    if not is_number(text):
        raise NotAnEvent(f"the header {name} is no whole number of 1 to 18 digits")
    return int(text)
