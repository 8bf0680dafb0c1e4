"""Times of RFC 3339, read exactly and written in one way. Pure."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from hifi.clock import MICROSECONDS

_RFC3339: Final = re.compile(
    rb"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d):(\d\d)(?:\.(\d{1,30}))?([Zz]|[+-]\d\d:\d\d)"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_us(text: bytes) -> int:
    """Microseconds since 1970 UTC of an RFC 3339 time; finer digits are cut off.

    Raises:
        ValueError: it is none, or names a day or an hour that does not exist.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("not a time of RFC 3339")
    day, minute, second, fraction, zone = match.groups()
    seconds = int(second)
    if seconds > 60:  # 60 is a leap second
        raise ValueError("a minute has no such second")
    fraction_us = int(fraction[:6].ljust(6, b"0")) if fraction else 0
    return _minute_us(day, minute, zone) + seconds * MICROSECONDS + fraction_us


def write(time_us: int) -> bytes:
    """RFC 3339 in UTC with microseconds."""
    moment = _EPOCH + timedelta(microseconds=time_us)
    # strftime's own %Y leaves the zeros of early years out.
    return f"{moment.year:04}-{moment:%m-%dT%H:%M:%S.%f}Z".encode()


@lru_cache(maxsize=4096)
def _minute_us(day: bytes, minute: bytes, zone: bytes) -> int:
    """The start of a minute; the events of a moment share it."""
    offset = "+00:00" if zone in b"Zz" else zone.decode()
    moment = datetime.fromisoformat(f"{day.decode()}T{minute.decode()}:00{offset}")
    return (moment - _EPOCH) // timedelta(microseconds=1)
