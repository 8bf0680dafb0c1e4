"""Times as text. Pure."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_END_MS: Final = 253_402_300_800_000
"""The first time that RFC 3339 cannot write, that of the year 10000."""


def rfc3339(time_ms: int) -> bytes:
    """A time in milliseconds since 1970 UTC as RFC 3339."""
    second, fraction_ms = divmod(time_ms, 1000)
    return b"%b.%03dZ" % (_whole_second(second), fraction_ms)


def rfc3339_or_none(time_ms: int | None) -> bytes | None:
    """A time in milliseconds since 1970 UTC as RFC 3339; None: there is none, or it is before 1970 or after 9999."""
    return None if time_ms is None or not 0 <= time_ms < _END_MS else rfc3339(time_ms)


@lru_cache(maxsize=1024)
def _whole_second(second: int) -> bytes:
    """Date and time of a second; records that follow each other mostly share it."""
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S").encode()
