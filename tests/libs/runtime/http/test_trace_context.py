"""Only a valid `traceparent` is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.runtime.http.trace_context import TraceParent, parse_traceparent

VALID = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
READ = TraceParent(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, sampled=True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (VALID, READ),
        (VALID[:-2] + b"02", READ._replace(sampled=False)),
        (b"01" + VALID[2:], READ),
        (b"01" + VALID[2:] + b"-more", READ),
        (VALID + b"-more", None),
        (VALID.upper(), None),
        (b"ff" + VALID[2:], None),
        (b"00-" + b"0" * 32 + VALID[35:], None),
        (VALID[:36] + b"0" * 16 + b"-01", None),
        (VALID + b"\n", None),
        (b"", None),
    ],
)
def test_only_a_valid_header_is_read(value: bytes, expected: TraceParent | None) -> None:
    assert parse_traceparent(value) == expected


@given(st.binary(max_size=80))
def test_no_bytes_raise(value: bytes) -> None:
    parse_traceparent(value)
