"""The packed headers of a record come back as they were written, and what is not hifi's is told apart."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.record import event
from hifi.runtime.errors import NotAnEvent

FIELDS = {
    event.PIPE: b"flights",
    event.REVISION: b"7",
    event.REVISION_OFFSET: b"9",
    event.ACCEPTED: b"1700000000000000",
    event.MINUTE: b"28333333",
    event.SEQ: event.seq_text(255, 12),
}
HEADER = b"1;flights;7;9;1700000000000000;28333333;00000000000000ff:12"
IDENTITY = event.Identity("flights", 7, 9, 1700000000000000, 28333333, b"00000000000000ff:12")


def test_identity_reads_what_ingest_wrote() -> None:
    prefix = event.identity_prefix("flights", 7, 9, 1700000000000000)
    value = prefix + b"%d;" % 28333333 + event.seq_text(255, 12)
    assert value == HEADER
    assert event.identity([(event.IDENTITY, value), ("ce_id", b"1")]) == IDENTITY


def test_fields_that_a_later_release_appends_are_skipped_and_kept() -> None:
    headers = [(event.IDENTITY, HEADER + b";new"), (event.HOP, b"5;6;a,b;w:1;new")]
    assert event.identity(headers) == IDENTITY
    assert event.hop(headers) == event.Hop(5, 6, b"a,b")
    changed = event.with_fields(headers, {event.IN: b"7", event.REASON: b"why"})
    assert changed == [
        (event.IDENTITY, HEADER + b";new"),
        (event.HOP, b"7;6;a,b;w:1"),
        (event.REASON, b"why"),
    ]


def test_the_origin_of_an_event_is_a_field_that_stays_with_it() -> None:
    headers = [(event.IDENTITY, HEADER + b";backfill"), (event.HOP, b"5")]
    found = event.fields(headers)
    assert found[event.ORIGIN] == event.BACKFILL
    assert event.packed(found) == headers
    assert event.identity(headers) == IDENTITY
    changed = event.with_fields(headers, {event.MINUTE: b"5"})
    assert changed[0][1].endswith(b";5;00000000000000ff:12;backfill")
    assert event.with_revision(headers, 8, 9)[0][1].endswith(b":12;backfill")
    assert event.ORIGIN not in event.fields([(event.IDENTITY, HEADER), (event.HOP, b"5")])


@pytest.mark.parametrize(
    "value",
    [b"", b"2" + HEADER[1:], HEADER.replace(b";7;", b";x;"), HEADER[:-20], HEADER.replace(b"ff:12", b"ff12")],
)
def test_a_header_of_another_format_or_a_malformed_one_is_not_an_event(value: bytes) -> None:
    with pytest.raises(NotAnEvent, match=event.IDENTITY):
        event.parse_identity(value)
    assert event.fields([(event.IDENTITY, b"2;new")]) == {event.IDENTITY: b"2;new"}


def test_a_record_without_the_header_is_not_an_event() -> None:
    for headers in ([], [("ce_id", b"1"), (event.IDENTITY, HEADER)]):
        with pytest.raises(NotAnEvent, match="first header"):
            event.identity(headers)
    with pytest.raises(NotAnEvent, match="second header"):
        event.hop([(event.IDENTITY, HEADER)])
    with pytest.raises(NotAnEvent, match=event.HOP):
        event.hop([(event.IDENTITY, HEADER), (event.HOP, b"x")])


@given(st.binary(max_size=80))
def test_any_bytes_are_an_identity_or_not_an_event(value: bytes) -> None:
    for content in (value, b"1;" + value):
        with contextlib.suppress(NotAnEvent):
            event.parse_identity(content)
        event.fields([(event.IDENTITY, content), (event.HOP, content), (event.RECEIPT, content)])


@given(epoch=st.integers(0, 2**64 - 1), sequence=st.integers(0, 2**63))
def test_any_epoch_and_sequence_come_back(epoch: int, sequence: int) -> None:
    text = event.seq_text(epoch, sequence)
    assert event.identity(event.packed(FIELDS | {event.SEQ: text})).seq == text


_TEXT = st.text("abc019-:,/", min_size=1, max_size=9).map(str.encode)


@given(
    hop=st.sampled_from([(), event.HOP_FIELDS[:1], event.HOP_FIELDS[:2], event.HOP_FIELDS]),
    receipt=st.sets(st.sampled_from(event.RECEIPT_FIELDS[1:])),
    others=st.dictionaries(st.sampled_from([event.REPLAY, event.DETAIL, "ce_id"]), _TEXT),
    data=st.data(),
)
def test_packed_fields_come_back(
    hop: tuple[str, ...], receipt: set[str], others: dict[str, bytes], data: st.DataObject
) -> None:
    outcome = (event.OUTCOME, *receipt) if receipt else ()
    known = FIELDS | {name: data.draw(_TEXT) for name in (*hop, *outcome)} | others
    assert event.fields(event.packed(known)) == known


def test_with_fields_sets_once_removes_and_keeps_what_it_does_not_know() -> None:
    old = [("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("d", b"5"), ("d", b"6")]
    assert event.with_fields(old, {"a": b"9", "c": None}) == [
        ("b", b"2"),
        ("d", b"5"),
        ("d", b"6"),
        ("a", b"9"),
    ]


def test_with_fields_puts_the_packed_headers_first() -> None:
    old = [(event.IDENTITY, HEADER), ("ce_id", b"1")]
    changed = event.with_fields(old, {event.IN: b"1"})
    assert changed == [(event.IDENTITY, HEADER), (event.HOP, b"1"), ("ce_id", b"1")]


def test_number_names_the_header_that_is_wrong() -> None:
    assert event.number({"n": b"-5"}, "n") == -5
    assert event.number({}, "n", 3) == 3
    for headers in ({}, {"n": b"x"}):
        with pytest.raises(NotAnEvent, match="n"):
            event.number(headers, "n")
