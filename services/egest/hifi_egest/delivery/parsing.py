"""Parse the records of a fetch into events. Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from aiokafka import ConsumerRecord

from hifi.errors import NotAnEvent
from hifi.event import (
    AMBIGUOUS,
    ATTEMPT,
    DESTINATION,
    DUE,
    FIRST_ATTEMPT,
    PASS,
    REPLAY,
    SERVICE,
    TIME,
    TO,
    TRACEPARENT,
    fields,
    hop,
    identity,
    number,
)  # fmt: skip
from hifi_egest.dedup.lineage import enriched_lineage, retried_lineage
from hifi_egest.delivery.event_record import NO_EARLIER_ATTEMPTS, EarlierAttempts, EventRecord
from hifi_egest.delivery.partition import ENRICHED, SourcePartition

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
    parsed: list[ParsedRecord] = []
    for record in records:
        try:
            parsed.append(_event(partition, record, fetched_us))
        except NotAnEvent as error:
            parsed.append(InvalidRecord(record, error))
    return parsed


def _event(partition: SourcePartition, record: ConsumerRecord, fetched_us: int) -> EventRecord:
    headers = record.headers
    known, its_hop = identity(headers), hop(headers)
    copied = [header for header in headers if header[0] in _COPIED]
    earlier, due_us = NO_EARLIER_ATTEMPTS, 0
    if partition.source == ENRICHED:
        if its_hop.to is None:
            raise NotAnEvent(f"the field {TO} is missing")
        names = its_hop.to.split(b",")
        destinations = names if len(names) == 1 else list(dict.fromkeys(names))
        found = dict(headers) if len(copied) > 1 or (copied and copied[0][0] != TIME) else {}
        lineage = enriched_lineage(known.seq, its_hop.raw, found.get(REPLAY), found.get(SERVICE))
    else:
        found = fields(headers)
        destinations = [found.get(DESTINATION, b"")]
        if not destinations[0] or b";" in destinations[0]:
            raise NotAnEvent(f"the header {DESTINATION} is missing, or has a semicolon")
        earlier = EarlierAttempts(
            attempts=number(found, ATTEMPT, 0),
            first_us=number(found, FIRST_ATTEMPT, 0),
            passes=number(found, PASS, 0),
            ambiguous=number(found, AMBIGUOUS, 0),
        )
        due = found.get(DUE)
        due_us = int(due) if due is not None and due.isdigit() else 0
        lineage = retried_lineage(found)
    return EventRecord(
        record,
        partition,
        b"%d;%d" % (fetched_us, its_hop.raw) if its_hop.raw >= 0 else b"%d" % fetched_us,
        copied,
        known.pipe,
        known.seq,
        known.accepted_us,
        fetched_us,
        destinations,
        known.barrier,
        due_us,
        earlier,
        lineage,
    )
