"""Parse the records of a fetch into events. Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from aiokafka import ConsumerRecord

from hifi.errors import NotAnEvent
from hifi.event import (
    ACCEPTED,
    AMBIGUOUS,
    ATTEMPT,
    DESTINATION,
    DUE,
    FIRST_ATTEMPT,
    IN,
    MINUTE,
    PASS,
    PIPE,
    PIPE_VERSION,
    RAW,
    REPLAY,
    SEQ,
    SOURCE,
    TIME,
    TO,
    TRACEPARENT,
    Headers,
    identity,
    number,
)  # fmt: skip
from hifi_egest.dedup.lineage import lineage
from hifi_egest.delivery.event_record import NO_EARLIER_ATTEMPTS, EarlierAttempts, EventRecord
from hifi_egest.delivery.partition import ENRICHED, SourcePartition

_COPIED: Final = (PIPE, PIPE_VERSION, SEQ, ACCEPTED, MINUTE, RAW, REPLAY, TIME, TRACEPARENT)
"""Headers that receipts have from their event."""


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
    parsed: list[ParsedRecord] = []
    for record in records:
        headers = dict(record.headers)
        try:
            parsed.append(_event(partition, record, headers, fetched_us))
        except NotAnEvent as error:
            parsed.append(InvalidRecord(record, error))
    return parsed


def _event(
    partition: SourcePartition, record: ConsumerRecord, headers: dict[str, bytes], fetched_us: int
) -> EventRecord:
    known = identity(headers)
    earlier = NO_EARLIER_ATTEMPTS
    if partition.source == ENRICHED:
        to = headers.get(TO)
        if to is None:
            raise NotAnEvent(f"the header {TO} is missing")
        destinations = list(dict.fromkeys(to.split(b",")))
    else:
        destinations = [headers.get(DESTINATION, b"")]
        if not destinations[0]:
            raise NotAnEvent(f"the header {DESTINATION} is missing")
        earlier = EarlierAttempts(
            attempts=number(headers, ATTEMPT, 0),
            first_us=number(headers, FIRST_ATTEMPT, 0),
            passes=number(headers, PASS, 0),
            ambiguous=number(headers, AMBIGUOUS, 0),
        )
    receipt: Headers = [(name, headers[name]) for name in _COPIED if name in headers]
    receipt.append((SOURCE, b"%b:%d" % (partition.source.encode(), record.offset)))
    receipt.append((IN, b"%d" % fetched_us))
    due = headers.get(DUE)
    return EventRecord(
        record,
        partition,
        receipt,
        known.pipe,
        headers[SEQ],
        known.accepted_us,
        fetched_us,
        destinations,
        known.pipe_version,
        int(due) if due is not None and due.isdigit() else 0,
        earlier,
        lineage(partition.source, headers),
    )
