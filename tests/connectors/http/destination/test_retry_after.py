"""Times that a destination asks for in `Retry-After`."""

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi_http.destination.retry_after import retry_after_s

NOW_US = 1_800_000_000_000_000


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        (b"0", 0.0),
        (b"120", 120.0),
        (b" 7 ", 7.0),
        (b"-3", None),
        (b"soon", None),
        (b"", None),
        (b"9" * 400, None),
    ],
)
def test_retry_after_in_seconds(header: bytes | None, seconds: float | None) -> None:
    assert retry_after_s(header, NOW_US) == seconds


@given(st.integers(-100_000, 100_000))
def test_retry_after_as_a_date(offset_s: int) -> None:
    date = format_datetime(datetime.fromtimestamp(NOW_US / 1e6 + offset_s, UTC), usegmt=True)
    assert retry_after_s(date.encode(), NOW_US) == max(0, offset_s)


@given(st.binary(max_size=60))
def test_no_retry_after_breaks_anything(header: bytes) -> None:
    seconds = retry_after_s(header, NOW_US)
    assert seconds is None or seconds >= 0
