"""The result of decoding: an event, or what is wrong with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from hifi.record.event import Headers
from hifi.runtime.http.problem import Problem

MAX_LISTED: Final = 100
"""Invalid events listed in one response; the others are only counted."""


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


def refusal(invalid: Mapping[int, InvalidEvent], total: int) -> Problem:
    """The error response for a request with invalid events. None of its events is accepted.

    Args:
        invalid: index of the event in the request to its error.
        total: events in the request.
    """
    listed = [
        {"index": index, "detail": error.detail} | ({"pointer": error.pointer} if error.pointer else {})
        for index, error in sorted(invalid.items())[:MAX_LISTED]
    ]
    statuses = {error.status for error in invalid.values()}
    status = statuses.pop() if len(statuses) == 1 else 400
    if total == 1:
        detail = f"the event was refused: {listed[0]['detail']}"
    else:
        more = f" (the first {MAX_LISTED} are listed)" if len(invalid) > MAX_LISTED else ""
        detail = f"{len(invalid)} of {total} events are invalid{more}; no event of the request was accepted"
    return Problem(status, detail, members={"bad": len(invalid), "events": listed})
