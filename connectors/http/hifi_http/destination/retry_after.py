"""Read the header `Retry-After`. Pure."""

import math
from datetime import UTC
from email.utils import parsedate_to_datetime

from hifi.runtime.clock import MICROSECONDS


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
        seconds = float(text) if text.isdecimal() else _until(text, now_us)
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _until(date: str, now_us: int) -> float:
    retry_time = parsedate_to_datetime(date)
    if retry_time.tzinfo is None:
        retry_time = retry_time.replace(tzinfo=UTC)
    return retry_time.timestamp() - now_us / MICROSECONDS
