"""An event that was read from a source, before it has an identity."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from aiokafka import ConsumerRecord

from hifi.event import REFUSED, Headers


class SourceEvent(NamedTuple):
    """One event of a source partition."""

    position: int
    """Of the event within the source partition; positions rise."""
    key: bytes
    """Kafka key; decides the partition of `raw`."""
    data: bytes | None
    headers: Headers
    """Attributes as record headers."""
    time_us: int | None
    """The event's own time, microseconds since 1970 UTC; None: it has none."""
    backfill: bool = False
    """Whether it was in the source before it could be read, such as a row of a snapshot."""


EventReader: TypeAlias = Callable[[ConsumerRecord], SourceEvent]
"""Makes the event of a record of a topic; one that cannot be read is marked as refused."""


def refused(event: SourceEvent, reason: str, detail: str) -> SourceEvent:
    """The event as one that normalize makes a dead letter of.

    Args:
        event: what could be read of it.
        reason: short stable code.
        detail: one sentence, without data of the event.
    """
    return event._replace(headers=[(REFUSED, f"{reason};{detail}".encode()), *event.headers])
