"""Times as text. Pure."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(time_ms: int) -> bytes:
    """A time in milliseconds since 1970 UTC as RFC 3339."""
    second, rest_ms = divmod(time_ms, 1000)
    return b"%b.%03dZ" % (_whole_second(second), rest_ms)


@lru_cache(maxsize=1024)
def _whole_second(second: int) -> bytes:
    """Date and time of a second; records that follow each other mostly share it."""
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S").encode()
