"""Parse points in time from the command line. Pure."""

from typing import Final

from hifi.record.cloudevents.timestamps import parse_iso8601
from hifi.runtime.errors import Misconfigured
from hifi.runtime.units import seconds

_EXAMPLES: Final = (
    "write a duration before now, such as 90m, 2h or 7d, or a time such as 2026-01-31T23:59:59Z"
)


def parse_time_ms(text: str | None, now_s: float) -> int | None:
    """Parse a duration before now or an RFC 3339 time; a time without a zone is in this machine's zone.

    Returns:
        Milliseconds since 1970 UTC; None for None.

    Raises:
        Misconfigured: the text is neither a duration nor a time.
    """
    if text is None:
        return None
    try:
        return int((now_s - float(seconds(text))) * 1000)
    except ValueError:
        pass
    try:
        return int(parse_iso8601(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise Misconfigured(f"{text!r} is not a point in time; {_EXAMPLES}") from None
