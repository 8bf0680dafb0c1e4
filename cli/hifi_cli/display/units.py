"""Format durations, sizes and times with their units."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(value_ms: float | None) -> str:
    """Format a duration: `340 ms`, `12.5 s`, or a dash for None."""
    if value_ms is None:
        return "-"
    if value_ms < 10:
        return f"{value_ms:.1f} ms"
    return f"{value_ms:,.0f} ms" if value_ms < 10_000 else f"{value_ms / 1000:,.1f} s"


def microseconds(value_us: float | None) -> str:
    """Format a duration given in microseconds, as `milliseconds` does."""
    return milliseconds(None if value_us is None else value_us / 1000)


def duration(seconds: float) -> str:
    """Format a duration of seconds to days: `45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    if minutes < 100:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def mebibytes(value_bytes: float) -> str:
    """Format a size in MiB: `123 MiB`."""
    return f"{value_bytes / 1024 / 1024:,.0f} MiB"


def count(value: float | None) -> str:
    """Format a count with thousands separators: `12,345`, or a dash for None."""
    return "-" if value is None else f"{value:,.0f}"


def utc_time(at_us: int | None, pattern: str = "%Y-%m-%d %H:%M") -> str:
    """Format a time, microseconds since 1970 UTC: `2026-11-21 10:04`, or `never` for None.

    One that no calendar has, as a program with another unit writes it, is shown as the number that it is.
    """
    if at_us is None:
        return "never"
    try:
        return (_EPOCH + timedelta(microseconds=at_us)).strftime(pattern)
    except OverflowError:
        return f"{at_us} µs"


def minute_utc(minute: int) -> str:
    """Format a minute since 1970 UTC as `hifi lost` reads it: `2026-11-21T10:04`."""
    return datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%dT%H:%M")


def local_time(at_s: float) -> str:
    """Format a time, seconds since 1970 UTC, in this machine's zone: `2026-11-21 10:04:07`."""
    try:
        return f"{datetime.fromtimestamp(at_s).astimezone():%Y-%m-%d %H:%M:%S}"
    except (OSError, OverflowError, ValueError):
        return f"{at_s:.0f} s after 1970"


def local_clock(at_s: float) -> str:
    """Format the time of day, seconds since 1970 UTC, in this machine's zone: `10:04:07`."""
    return f"{datetime.fromtimestamp(at_s).astimezone():%H:%M:%S}"
