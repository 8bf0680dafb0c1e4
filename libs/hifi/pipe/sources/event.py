"""An event that was read from a source, before it has an identity. No I/O."""

from collections.abc import Callable
from typing import TypeAlias

from aiokafka import ConsumerRecord

from hifi.record.headers import Headers
from hifi.record.refusal import refusal_header


class SourceEvent:
    """One event of a source partition.

    Attributes:
        position: of the event within the source partition; positions rise.
        key: Kafka key; decides the partition of `raw`.
        data: of the event; None: it cannot be read, or has none.
        headers: attributes as record headers.
        time_us: the event's own time, microseconds since 1970 UTC; None: it has none.
        backfill: whether it was in the source before it could be read, such as a row of a snapshot.
        skipped: whether nothing is written for it: its record says something of the source.
        followed: whether `TopicEvents.following` has events that take its place.
    """

    __slots__ = ("backfill", "data", "followed", "headers", "key", "position", "skipped", "time_us")

    def __init__(
        self,
        position: int,
        key: bytes,
        data: bytes | None,
        headers: Headers,
        time_us: int | None,
        backfill: bool = False,
    ) -> None:
        self.position = position
        self.key = key
        self.data = data
        self.headers = headers
        self.time_us = time_us
        self.backfill = backfill
        self.skipped = self.followed = False


EventReader: TypeAlias = Callable[[ConsumerRecord], SourceEvent]
"""Makes the event of a record of a topic; one that cannot be read is marked as refused."""


def refused(event: SourceEvent, reason: str, detail: str) -> SourceEvent:
    """Make an event one that normalize makes a dead letter of.

    Args:
        event: what could be read of it; it is changed.
        reason: short stable code.
        detail: one sentence, without data of the event.
    """
    event.headers = [refusal_header(reason, detail), *event.headers]
    return event
