"""The time of an event. Pure."""

from collections.abc import Sequence

from hifi.record.cloudevents.timestamps import parse_us
from hifi.record.headers import TIME


def event_time_us(headers: Sequence[tuple[str, bytes | None]], accepted_us: int) -> int:
    """The time of an event, microseconds since 1970 UTC: its accepted time if it has none, or one that is no time."""
    for name, value in headers:
        if name == TIME and value is not None:
            try:
                return parse_us(value)
            except (ValueError, OverflowError):
                return accepted_us
    return accepted_us
