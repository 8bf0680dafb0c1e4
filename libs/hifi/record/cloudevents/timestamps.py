"""Read and write RFC 3339 timestamps with microseconds: the one parser of times for all services. Pure.

`t`, `z` and a space are read as `T` and `Z` (RFC 3339, 5.6), and the second 60 as the beginning of the next minute.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from hifi.runtime.clock import MICROSECONDS

_RFC3339: Final = re.compile(
    rb"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d):(\d\d)(?:\.(\d{1,30}))?([Zz]|[+-]\d\d:\d\d)"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


_LEAP_SECOND: Final = re.compile(r"([0-9W-]{8,10}.\d\d:?\d\d:?)60(?!\d)(.*)", re.DOTALL)


def parse(text: bytes) -> tuple[int, bytes]:
    """Microseconds since 1970 UTC of an RFC 3339 timestamp, and its text with `T`, `Z` and a second below 60.

    Raises:
        ValueError: as `parse_us`.
    """
    time_us = parse_us(text)
    if text[10:11] == b"T" and text[17:19] != b"60" and not text.endswith(b"z"):
        return time_us, text
    fraction = text[19:].rstrip(b"Zz").partition(b"+")[0].partition(b"-")[0]
    zone = text[19 + len(fraction) :].upper()
    if text[17:19] != b"60":
        return time_us, b"%bT%b%b%b" % (text[:10], text[11:19], fraction, zone)
    try:
        return time_us, b"%b%bZ" % (_second(time_us // MICROSECONDS), fraction)
    except OverflowError:
        raise ValueError("out of range") from None


def parse_iso8601(text: str) -> datetime:
    """A time in ISO 8601, with or without a zone, in any form that `datetime.fromisoformat` reads.

    Raises:
        ValueError: malformed, or a date or time that does not exist.
    """
    if text.endswith("z"):
        text = f"{text[:-1]}Z"
    leap_match = _LEAP_SECOND.fullmatch(text) if "60" in text else None
    if leap_match is not None:
        try:
            return datetime.fromisoformat(f"{leap_match[1]}59{leap_match[2]}") + timedelta(seconds=1)
        except OverflowError:
            raise ValueError("out of range") from None
    return datetime.fromisoformat(text)


def parse_us(text: bytes) -> int:
    """Microseconds since 1970 UTC of an RFC 3339 timestamp; finer digits are cut off.

    Raises:
        ValueError: malformed, or a date or time that does not exist.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("not an RFC 3339 timestamp")
    day, minute, second, fraction, zone = match.groups()
    seconds = int(second)
    if seconds > 60:  # 60 is a leap second
        raise ValueError("seconds out of range")
    fraction_us = int(fraction[:6].ljust(6, b"0")) if fraction else 0
    return _minute_us(day, minute, zone) + seconds * MICROSECONDS + fraction_us


def format_us(time_us: int) -> bytes:
    """An RFC 3339 timestamp in UTC with microseconds.

    Args:
        time_us: microseconds since 1970 UTC.
    """
    seconds, fraction_us = divmod(time_us, MICROSECONDS)
    return b"%b.%06dZ" % (_second(seconds), fraction_us)


@lru_cache(maxsize=8)
def _second(seconds: int) -> bytes:
    """A timestamp without fraction and zone; cached, since requests follow each other within a second."""
    whole_second = _EPOCH + timedelta(seconds=seconds)
    # strftime's %Y does not pad years below 1000.
    return f"{whole_second.year:04}-{whole_second:%m-%dT%H:%M:%S}".encode()


@lru_cache(maxsize=4096)
def _minute_us(day: bytes, minute: bytes, zone: bytes) -> int:
    """Start of a minute; cached, since events sent together share it."""
    offset = "+00:00" if zone in b"Zz" else zone.decode()
    minute_start = datetime.fromisoformat(f"{day.decode()}T{minute.decode()}:00{offset}")
    return (minute_start - _EPOCH) // timedelta(microseconds=1)
