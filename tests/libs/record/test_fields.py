"""The packed headers of a record come back as they were written, and headers of others are recognized."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.record.fields import check_values, fields, number, packed, with_fields
from hifi.record.headers import (
    ACCEPTED,
    DETAIL,
    HOP,
    IDENTITY,
    IN,
    INDEX,
    LOG,
    MINUTE,
    ORIGIN,
    OUTCOME,
    PIPE,
    POSITION,
    REASON,
    RECEIPT,
    REPLAY,
    REVISION,
    REVISION_OFFSET,
    SEQ,
)
from hifi.record.hop import HOP_FIELDS, Hop, hop, split_hop_unchecked
from hifi.record.identity import (
    BACKFILL,
    Identity,
    IdentityReader,
    identity,
    identity_prefix,
    parse_identity,
    seq_text,
    with_revision,
)
from hifi.record.receipt import RECEIPT_FIELDS, split_receipt
from hifi.record.source_position import source_position
from hifi.runtime.errors import NotAnEvent

FIELDS = {
    PIPE: b"flights",
    REVISION: b"7",
    REVISION_OFFSET: b"9",
    ACCEPTED: b"1700000000000000",
    MINUTE: b"28333333",
    SEQ: seq_text(255, 12),
}
HEADER = b"2;flights;7;9;1700000000000000;28333333;00000000000000ff:12"
FLIGHTS = Identity("flights", 7, 9, 1700000000000000, 28333333, b"00000000000000ff:12")


def test_identity_reads_what_ingest_wrote() -> None:
    prefix = identity_prefix("flights", 7, 9, 1700000000000000)
    value = prefix + b"%d;" % 28333333 + seq_text(255, 12)
    assert value == HEADER
    assert identity([(IDENTITY, value), ("ce_id", b"1")]) == FLIGHTS


def test_fields_that_a_later_release_appends_are_skipped_and_kept() -> None:
    headers = [(IDENTITY, HEADER + b";;;;new"), (HOP, b"5;6;a,b;w:1;7;8;new")]
    assert identity(headers) == FLIGHTS
    assert hop(headers) == Hop(5, 6, b"a,b", b"w:1", 7, 8)
    changed_headers = with_fields(headers, {IN: b"7", REASON: b"why"})
    assert changed_headers == [
        (IDENTITY, HEADER + b";;;;new"),
        (HOP, b"7;6;a,b;w:1;7;8"),
        (REASON, b"why"),
    ]


def test_the_origin_of_an_event_is_a_field_that_stays_with_it() -> None:
    headers = [(IDENTITY, HEADER + b";backfill"), (HOP, b"5")]
    read_fields = fields(headers)
    assert read_fields[ORIGIN] == BACKFILL
    assert packed(read_fields) == headers
    assert identity(headers) == FLIGHTS
    changed_headers = with_fields(headers, {MINUTE: b"5"})
    assert changed_headers[0][1].endswith(b";5;00000000000000ff:12;backfill")
    assert with_revision(headers, 8, 9)[0][1].endswith(b":12;backfill")
    assert ORIGIN not in fields([(IDENTITY, HEADER), (HOP, b"5")])


def test_a_record_that_leaves_its_log_names_it() -> None:
    headers = [(IDENTITY, HEADER + b";;;0a0b"), (HOP, b"5;6;;;7")]
    values = fields(headers)
    assert (values[LOG], values[INDEX]) == (b"0a0b", b"7")
    assert packed(values) == headers
    assert identity(headers) == FLIGHTS
    assert with_fields([(IDENTITY, HEADER), (HOP, b"5;6")], {LOG: b"0a0b", INDEX: b"7"}) == headers


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"1" + HEADER[1:],
        HEADER + b";;batch",
        HEADER.replace(b";7;", b";x;"),
        HEADER[:-20],
        HEADER.replace(b"ff:12", b"ff12"),
    ],
)
def test_a_header_of_another_format_or_a_malformed_one_is_not_an_event(value: bytes) -> None:
    with pytest.raises(NotAnEvent, match=IDENTITY):
        parse_identity(value)
    assert fields([(IDENTITY, b"1;old")]) == {IDENTITY: b"1;old"}


def test_a_record_without_the_header_is_not_an_event() -> None:
    for headers in ([], [("ce_id", b"1"), (IDENTITY, HEADER)]):
        with pytest.raises(NotAnEvent, match="first header"):
            identity(headers)
    with pytest.raises(NotAnEvent, match="second header"):
        hop([(IDENTITY, HEADER)])
    with pytest.raises(NotAnEvent, match=HOP):
        hop([(IDENTITY, HEADER), (HOP, b"x")])


def test_a_header_without_a_value_makes_a_record_no_event_and_is_left_out_of_its_fields() -> None:
    """Kafka allows it."""
    whole = [(IDENTITY, HEADER), (HOP, b"5;6"), (POSITION, b"run;1;s"), ("ce_id", b"1")]
    check_values(whole)
    for at, (name, _) in enumerate(whole):
        headers = [(header, None if header == name else value) for header, value in whole]
        with pytest.raises(NotAnEvent, match=f"the header {name} has no value"):
            check_values(headers)
        assert fields(headers) == fields([*whole[:at], *whole[at + 1 :]])
        changed = with_fields(headers, {IN: b"7", REASON: b"why"})
        assert name not in dict(changed) or name == HOP
        assert fields(changed)[REASON] == b"why"
    for read, index in ((identity, 0), (IdentityReader().read, 0), (hop, 1), (source_position, 2)):
        headers = [(name, None if at == index else value) for at, (name, value) in enumerate(whole)]
        with pytest.raises(NotAnEvent, match=whole[index][0]):
            read(headers)
    assert split_hop_unchecked([whole[0], (HOP, None)]) == [b""]
    with pytest.raises(NotAnEvent, match=RECEIPT):
        split_receipt([*whole[:2], (RECEIPT, None)])


@given(st.binary(max_size=80))
def test_any_bytes_are_an_identity_or_not_an_event(value: bytes) -> None:
    for content in (value, b"2;" + value):
        with contextlib.suppress(NotAnEvent):
            parse_identity(content)
        fields([(IDENTITY, content), (HOP, content), (RECEIPT, content)])


@given(epoch=st.integers(0, 2**64 - 1), sequence=st.integers(0, 2**63))
def test_any_epoch_and_sequence_come_back(epoch: int, sequence: int) -> None:
    text = seq_text(epoch, sequence)
    assert identity(packed(FIELDS | {SEQ: text})).seq == text


_TEXT = st.text("abc019-:,/", min_size=1, max_size=9).map(str.encode)


@given(
    hop_names=st.sampled_from([(), HOP_FIELDS[:1], HOP_FIELDS[:2], HOP_FIELDS]),
    receipt=st.sets(st.sampled_from(RECEIPT_FIELDS[1:])),
    other_fields=st.dictionaries(st.sampled_from([REPLAY, DETAIL, "ce_id"]), _TEXT),
    data=st.data(),
)
def test_packed_fields_come_back(
    hop_names: tuple[str, ...], receipt: set[str], other_fields: dict[str, bytes], data: st.DataObject
) -> None:
    outcome = (OUTCOME, *receipt) if receipt else ()
    values = FIELDS | {name: data.draw(_TEXT) for name in (*hop_names, *outcome)} | other_fields
    assert fields(packed(values)) == values


def test_with_fields_sets_once_removes_and_keeps_what_it_does_not_know() -> None:
    old_headers = [("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("d", b"5"), ("d", b"6")]
    assert with_fields(old_headers, {"a": b"9", "c": None}) == [
        ("b", b"2"),
        ("d", b"5"),
        ("d", b"6"),
        ("a", b"9"),
    ]


def test_with_fields_puts_the_packed_headers_first() -> None:
    old_headers = [(IDENTITY, HEADER), ("ce_id", b"1")]
    changed_headers = with_fields(old_headers, {IN: b"1"})
    assert changed_headers == [(IDENTITY, HEADER), (HOP, b"1"), ("ce_id", b"1")]


def test_number_names_the_header_that_is_wrong() -> None:
    assert number({"n": b"-5"}, "n") == -5
    assert number({}, "n", 3) == 3
    for headers in ({}, {"n": b"x"}):
        with pytest.raises(NotAnEvent, match="n"):
            number(headers, "n")
