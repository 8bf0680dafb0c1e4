"""The result of one request: an answer with a status line, no response, or a write that the destination refused."""

import math
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from hifi.runtime.clock import MICROSECONDS


class Answer(NamedTuple):
    """The destination sent a status line.

    Attributes:
        status: HTTP status code.
        retry_after_s: what a `Retry-After` header asks for, seconds.
        answered_us: when the status line arrived, microseconds since 1970 UTC.
    """

    status: int
    retry_after_s: float | None = None
    answered_us: int = 0

    @property
    def reason(self) -> str:
        """The stable reason code, such as `status-503`."""
        return f"status-{self.status}"


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The request ended without a status line.

    Attributes:
        reason: `dns`, `connect`, `tls`, `timeout`, `reset`, `closed` or `protocol`; of other kinds than HTTP also
            `connection`, `unavailable` or `unacknowledged`.
        detail: one sentence for a person.
        ambiguous: bytes were sent, so the destination may have received the request.
    """

    reason: str
    detail: str
    ambiguous: bool


@dataclass(frozen=True, slots=True)
class RefusedWrite:
    """A destination of another kind than HTTP refused the events of a write, or one of them, for good.

    Attributes:
        reason: stable code of the dead letter.
        detail: one sentence for a person.
    """

    reason: str
    detail: str


def retry_after_s(value: bytes | None, now_us: int) -> float | None:
    """Parse a `Retry-After` header, in seconds or as an HTTP date (RFC 9110, 10.2.3).

    Args:
        value: of the header; None if there is none.
        now_us: current time, to which a date is compared, microseconds since 1970 UTC.

    Returns:
        Seconds to wait, at least 0; None without a header or if it is malformed.
    """
    if value is None:
        return None
    text = value.decode("latin-1").strip()
    try:
        seconds = float(text) if text.isdigit() else _until(text, now_us)
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _until(date: str, now_us: int) -> float:
    when = parsedate_to_datetime(date)
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return when.timestamp() - now_us / MICROSECONDS
