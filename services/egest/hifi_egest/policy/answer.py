"""What came of one request: an answer, or silence."""

import math
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from hifi.clock import MICROSECONDS


class Answer(NamedTuple):
    """A status line came. `answered_us`: when, microseconds since 1970 UTC."""

    status: int
    retry_after_s: float | None = None
    answered_us: int = 0

    @property
    def reason(self) -> str:
        """The short stable code of this answer."""
        return f"status-{self.status}"


@dataclass(frozen=True, slots=True)
class Silence:
    """No status line came.

    Attributes:
        reason: `dns`, `connect`, `tls`, `timeout`, `reset`, `closed` or `protocol`.
        detail: one sentence for a person.
        ambiguous: something was sent, so the request may have arrived all the same.
    """

    reason: str
    detail: str
    ambiguous: bool


def retry_after_s(value: bytes | None, now_us: int) -> float | None:
    """The seconds that a `Retry-After` header asks for: seconds or an HTTP date (RFC 9110, 10.2.3).

    Args:
        value: of the header, None where there is none.
        now_us: to which a date is compared, microseconds since 1970 UTC.

    Returns:
        At least 0; None where there is no header or it cannot be understood.
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
