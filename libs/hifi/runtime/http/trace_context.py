"""The header `traceparent` of W3C Trace Context. Pure."""

import re
from typing import Final, NamedTuple

_TRACEPARENT: Final = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]{0,200})?"
)
"""Versions above 00 may have further fields after a dash."""


class TraceParent(NamedTuple):
    """A valid `traceparent`."""

    trace_id: int
    """128 bits."""
    parent_id: int
    """Span id of the sender, 64 bits."""
    sampled: bool


def parse_traceparent(value: bytes) -> TraceParent | None:
    """Read a `traceparent`; None if it is invalid.

    Args:
        value: of the HTTP header, or of the CloudEvents extension of the same name.
    """
    match = _TRACEPARENT.fullmatch(value)
    if match is None or (match[1] == b"00" and match[5]):
        return None
    return TraceParent(int(match[2], 16), int(match[3], 16), bool(int(match[4], 16) & 1))
