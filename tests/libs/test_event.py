"""The identity that travels in headers survives the trip, and what is not hifi's is told apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi import event
from hifi.errors import NotAnEvent

GOOD = {
    event.PIPE: b"flights",
    event.PIPE_VERSION: b"7",
    event.SEQ: event.seq_text(255, 12),
    event.ACCEPTED: b"1700000000000000",
    event.MINUTE: b"28333333",
}


def test_identity_reads_what_ingest_wrote() -> None:
    assert event.identity(GOOD) == event.Identity(
        "flights", 7, "00000000000000ff", 12, 1700000000000000, 28333333
    )


@given(epoch=st.integers(0, 2**64 - 1), sequence=st.integers(0, 2**63))
def test_any_epoch_and_sequence_come_back(epoch: int, sequence: int) -> None:
    identity = event.identity(GOOD | {event.SEQ: event.seq_text(epoch, sequence)})
    assert (int(identity.epoch, 16), identity.sequence) == (epoch, sequence)


@pytest.mark.parametrize("missing", sorted(GOOD))
def test_a_record_without_one_of_our_headers_is_not_an_event(missing: str) -> None:
    with pytest.raises(NotAnEvent, match=missing):
        event.identity({name: value for name, value in GOOD.items() if name != missing})


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), st.binary(max_size=40), min_size=5))
def test_any_bytes_are_an_identity_or_not_an_event(headers: dict[str, bytes]) -> None:
    try:
        event.identity(headers)
    except NotAnEvent:
        return


def test_with_headers_sets_once_removes_and_keeps_order() -> None:
    old = [("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4")]
    assert event.with_headers(old, {"a": b"9", "c": None}) == [("b", b"2"), ("a", b"9")]


def test_number_names_the_header_that_is_wrong() -> None:
    assert event.number({"n": b"-5"}, "n") == -5
    assert event.number({}, "n", 3) == 3
    for headers in ({}, {"n": b"x"}):
        with pytest.raises(NotAnEvent, match="n"):
            event.number(headers, "n")
