"""RFC 3339 timestamps are read and written exactly."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.record.cloudevents import timestamps

YEARS = (datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001 - Hypothesis adds the zone


@given(st.datetimes(*YEARS), st.integers(-23, 23), st.sampled_from("Tt "))
def test_times_are_read_exactly(moment: datetime, hours: int, letter: str) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(hours=hours)))
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
