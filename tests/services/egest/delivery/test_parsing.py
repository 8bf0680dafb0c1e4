"""Records are parsed into events with all that their deliveries need; others are told apart."""

from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from egest_stream import EPOCH, TIME, attributes

from hifi.kafka.consumer import AssignedPartition
from hifi.record.fields import packed
from hifi.record.headers import (
    ACCEPTED,
    AMBIGUOUS,
    ATTEMPT,
    DESTINATION,
    DUE,
    IN,
    MINUTE,
    PASS,
    PIPE,
    RAW,
    REPLAY,
    RETRY,
    REVISION,
    REVISION_OFFSET,
    SERVICE,
    STARTED,
    TO,
)
from hifi.record.headers import SEQ as SEQ_FIELD
from hifi.record.headers import TIME as TIME_HEADER
from hifi.record.identity import seq_text
from hifi_egest.delivery.event_record import EventRecord
from hifi_egest.delivery.in_flight_budget import InFlightBudget
from hifi_egest.delivery.parsing import InvalidRecord, parse
from hifi_egest.delivery.partition import ENRICHED, RETRY_OUT, SourcePartition

SEQ = seq_text(EPOCH, 7)


def parsed(source: str, *more: tuple[str, bytes], drop: str = "") -> Any:
    found = {
        **dict(attributes(7)),
        PIPE: b"flights",
        REVISION: b"2",
        REVISION_OFFSET: b"3",
        SEQ_FIELD: SEQ,
        ACCEPTED: b"5",
        MINUTE: b"0",
        IN: b"6",
        RAW: b"11",
        TO: b"a,b,a",
        **dict(more),
    }
    found.pop(drop, None)
    kept = tuple(packed(found))
    record = ConsumerRecord(source, 0, 9, 0, 0, b"k", b"{}", None, 0, 2, kept)
    partition = SourcePartition(
        AssignedPartition(TopicPartition(source, 0)), source, InFlightBudget(10, 10**6)
    )
    (one,) = parse(partition, [record], 99)
    return one


def test_an_event_has_each_destination_once() -> None:
    one = parsed(ENRICHED)
    assert isinstance(one, EventRecord)
    assert one.destinations == [b"a", b"b"]
    assert (one.pending, one.pipe, one.revision_offset, one.accepted_us, one.due_us) == (
        2,
        "flights",
        3,
        5,
        0,
    )
    assert (one.key, one.log, one.log_offset) == (SEQ, "raw", 11)
    assert one.receipt_hop == b"99;11"
    assert one.copied == [(TIME_HEADER, TIME)]


def test_a_retry_continues_the_counts_of_its_delivery() -> None:
    one = parsed(
        RETRY_OUT,
        (DESTINATION, b"a"),
        (PASS, b"2"),
        (ATTEMPT, b"5"),
        (STARTED, b"44"),
        (AMBIGUOUS, b"1"),
        (DUE, b"1000"),
        (RETRY, b"5s:123"),
    )
    assert one.destinations == [b"a"]
    assert one.earlier == (5, 44, 2, 1)
    assert one.due_us == 1000
    assert (one.key, one.log, one.log_offset) == (b"~".join((SEQ, b"0", b"a", b"2")), "5s", 123)


def test_a_replay_at_enrich_is_identified_by_its_key_alone() -> None:
    one = parsed(ENRICHED, (REPLAY, b"1"), (SERVICE, b"enrich"))
    assert (one.key, one.log) == (SEQ + b"~1", None)
    again = parsed(ENRICHED, (REPLAY, b"1"), (SERVICE, b"normalize"))
    assert (again.key, again.log, again.log_offset) == (SEQ + b"~1", "raw", 11)


@pytest.mark.parametrize("missing", [SEQ_FIELD, TO, ACCEPTED, REVISION_OFFSET, IN])
def test_a_record_without_a_field_of_hifi_is_invalid(missing: str) -> None:
    one = parsed(ENRICHED, drop=missing)
    assert isinstance(one, InvalidRecord)
    assert one.error.reason == "not-an-event"
