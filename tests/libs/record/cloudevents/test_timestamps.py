"""RFC 3339 timestamps are read and written exactly."""

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.record.cloudevents import timestamps

YEARS = (datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001 - Hypothesis adds the zone


@given(st.datetimes(*YEARS), st.integers(-23, 23), st.sampled_from("Tt "))
def test_times_are_read_exactly(local_time: datetime, hours: int, letter: str) -> None:
    aware = local_time.replace(tzinfo=timezone(timedelta(hours=hours)))
    text = aware.isoformat(sep=letter)
    assert timestamps.parse_us(text.encode()) == (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )
    assert datetime.fromisoformat(timestamps.format_us(timestamps.parse_us(text.encode())).decode()) == aware


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-29T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:61Z",
        "2026-01-01",
        "2026-01-01T00:00Z",
        "1",
        "",
    ],
)
def test_malformed_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        timestamps.parse_us(text.encode())


def test_a_leap_second_and_fine_fractions_are_times() -> None:
    assert timestamps.parse_us(b"2016-12-31T23:59:60Z") == timestamps.parse_us(b"2017-01-01T00:00:00Z")
    assert timestamps.parse_us(b"1970-01-01T00:00:00.123456789z") == 123_456


@given(
    st.datetimes(*YEARS),
    st.integers(-23, 23),
    st.sampled_from("Tt "),
    st.sampled_from(["", ".5", ".123456789", ".000", ".1234567890123"]),
    st.booleans(),
    st.booleans(),
)
def test_one_form_reaches_receivers_whatever_form_was_sent(
    local_time: datetime, hours: int, letter: str, fraction: str, small: bool, leap: bool
) -> None:
    zone = ("z" if small else "Z") if hours == 0 else f"{hours:+03d}:30"
    second = "60" if leap else "07"
    text = f"{local_time.year:04}-{local_time:%m-%d}{letter}{local_time:%H:%M}:{second}{fraction}{zone}"
    time_us, canonical = timestamps.parse(text.encode())
    assert time_us == timestamps.parse_us(text.encode()) == timestamps.parse_us(canonical)
    assert timestamps.parse(canonical) == (time_us, canonical)
    assert canonical[10:11] == b"T"
    assert canonical[17:19] != b"60"
    assert fraction.encode() in canonical
    assert b"z" not in canonical
    parsed_time = timestamps.parse_iso8601(text)
    assert (parsed_time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == time_us
    if letter == "T" and zone != "z" and not leap:
        assert canonical == text.encode()


def test_a_leap_second_after_the_last_year_is_out_of_range() -> None:
    for parse in (timestamps.parse_iso8601, lambda text: timestamps.parse(text.encode())):
        with pytest.raises(ValueError):
            parse("9999-12-31T23:59:60Z")


@given(st.text("0123456789-:TtZz+.W ,", max_size=30))
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    for parse in (timestamps.parse_iso8601, lambda text: timestamps.parse(text.encode())):
        with contextlib.suppress(ValueError):
            parse(text)
