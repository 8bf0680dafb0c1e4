"""Records are parsed into events with all that their deliveries need; other records are recognised as such."""

from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from tests.support.egest.egest_stream import EPOCH, TIME, attributes

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
from hifi_egest.dedup.copy_key import work_key
from hifi_egest.delivery.delivery import ENRICHED, RETRY_OUT, EventRecord, SourcePartition
from hifi_egest.delivery.memory_bounds import InFlightBudget
from hifi_egest.delivery.parsing import InvalidRecord, parse

SEQ = seq_text(EPOCH, 7)


def parsed(source: str, *extra_fields: tuple[str, bytes], drop: str = "") -> Any:
    values = {
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
        **dict(extra_fields),
    }
    values.pop(drop, None)
    headers = tuple(packed(values))
    record = ConsumerRecord(source, 0, 9, 0, 0, b"k", b"{}", None, 0, 2, headers)
    partition = SourcePartition(
        AssignedPartition(TopicPartition(source, 0)), source, InFlightBudget(10, 10**6)
    )
    (delivery,) = parse(partition, [record], 99)
    return delivery


def test_an_event_has_each_destination_once() -> None:
    delivery = parsed(ENRICHED)
    assert isinstance(delivery, EventRecord)
    assert delivery.destinations == [b"a", b"b"]
    assert (
        delivery.pending,
        delivery.pipe,
        delivery.revision_offset,
        delivery.accepted_us,
        delivery.due_us,
    ) == (
        2,
        "flights",
        3,
        5,
        0,
    )
    assert (delivery.key, delivery.log, delivery.log_offset) == (SEQ, "raw", 11)
    assert delivery.receipt_hop == b"99;11"
    assert delivery.copied == [(TIME_HEADER, TIME)]


def test_a_retry_continues_the_counts_of_its_delivery() -> None:
    delivery = parsed(
        RETRY_OUT,
        (DESTINATION, b"a"),
        (PASS, b"2"),
        (ATTEMPT, b"5"),
        (STARTED, b"44"),
        (AMBIGUOUS, b"1"),
        (DUE, b"1000"),
        (RETRY, b"5s:123"),
    )
    assert delivery.destinations == [b"a"]
    assert delivery.earlier == (5, 44, 2, 1)
    assert delivery.due_us == 1000
    assert (delivery.key, delivery.log, delivery.log_offset) == (
        b"~".join((SEQ, b"0", b"a", b"2")),
        "5s",
        123,
    )


def test_a_replay_at_enrich_is_identified_by_its_key_alone() -> None:
    delivery = parsed(ENRICHED, (REPLAY, b"1"), (SERVICE, b"enrich"))
    assert (delivery.key, delivery.log) == (SEQ + b"~1~a", None)
    normalize_delivery = parsed(ENRICHED, (REPLAY, b"1"), (SERVICE, b"normalize"))
    assert (normalize_delivery.key, normalize_delivery.log, normalize_delivery.log_offset) == (
        SEQ + b"~1~a",
        "raw",
        11,
    )


@pytest.mark.parametrize("replay", [(), ((REPLAY, b"1"), (SERVICE, b"egest"))])
def test_an_event_has_the_key_that_its_receipts_give_at_a_takeover_and_a_replay_one_for_each_destination(
    replay: tuple[tuple[str, bytes], ...],
) -> None:
    keys = [parsed(ENRICHED, (TO, name), *replay).key for name in (b"a", b"b", b"")]
    receipts = [
        {SEQ_FIELD: SEQ, DESTINATION: name, PASS: b"0"} | dict(replay[:1]) for name in (b"a", b"b", b"")
    ]
    assert keys == [work_key(ENRICHED, receipt) for receipt in receipts]
    assert len(set(keys)) == (3 if replay else 1)


@pytest.mark.parametrize("missing_field", [SEQ_FIELD, TO, ACCEPTED, REVISION_OFFSET, IN])
def test_a_record_without_a_field_of_hifi_is_invalid(missing_field: str) -> None:
    delivery = parsed(ENRICHED, drop=missing_field)
    assert isinstance(delivery, InvalidRecord)
    assert delivery.error.reason == "not-an-event"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (DESTINATION, b"\xff"),
        (PASS, b"-6"),
        (ATTEMPT, b"x"),
        (STARTED, b"9" * 400),
        (AMBIGUOUS, b""),
        (TIME_HEADER, None),
    ],
)
def test_a_retry_with_a_field_that_egest_does_not_write_is_invalid(field: str, value: Any) -> None:
    delivery = parsed(RETRY_OUT, (DESTINATION, b"a"), (field, value))
    assert isinstance(delivery, InvalidRecord)
    assert field in str(delivery.error)


def test_an_event_with_a_header_without_a_value_is_invalid() -> None:
    header: Any = ("ce_x", None)
    assert isinstance(parsed(ENRICHED, header), InvalidRecord)


@pytest.mark.parametrize(
    "log", [b"5s:" + b"9" * 19, b"5s:" + b"9" * 5000, b"s" * 65 + b":1", b"5s:-1", "5s:²".encode()]
)
def test_a_log_that_fits_into_no_commit_counts_as_none(log: bytes) -> None:
    delivery = parsed(RETRY_OUT, (DESTINATION, b"a"), (RETRY, log), (DUE, b"9" * 5000))
    assert (delivery.log, delivery.log_offset, delivery.due_us) == (None, 0, 0)
