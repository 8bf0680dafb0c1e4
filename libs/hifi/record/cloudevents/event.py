"""The result of decoding: an event, or what is wrong with it."""

from dataclasses import dataclass
from typing import NamedTuple

from hifi.record.headers import Headers


class DecodedEvent(NamedTuple):
    """A valid event of a request, before it has an identity."""

    source: bytes
    id: bytes
    key: bytes
    """Kafka key; decides the partition."""
    headers: Headers
    """Attributes as record headers."""
    data: bytes
    time_us: int | None
    """The event's own time, microseconds since 1970 UTC."""

    def size_bytes(self) -> int:
        """Size of data and attributes."""
        return len(self.data) + sum([len(name) + len(value) for name, value in self.headers])


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Limits of the events of one request."""

    event_bytes: int
    """Data and attributes of one event."""
    batch_events: int
    depth: int
    """Nesting of JSON."""


@dataclass(frozen=True, slots=True)
class InvalidEvent(Exception):
    """An event of a request cannot be accepted.

    Attributes:
        detail: one sentence; never quotes event data.
        pointer: JSON pointer (RFC 6901) into the event.
        status: HTTP status if this is the only kind of error in the request.
    """

    detail: str
    pointer: str = ""
    status: int = 400


def check_size(size_bytes: int, limits: DecodeLimits) -> None:
    """Raises InvalidEvent (413) if an event, or a part of it, is larger than an event may be."""
    if size_bytes > limits.event_bytes:
        raise InvalidEvent(f"{size_bytes} bytes; the limit of an event is {limits.event_bytes}", status=413)
