"""An event on a topic: CloudEvents attributes and hifi's own facts as headers, the data as the value.

Kafka protocol binding for CloudEvents 1.0, binary content mode: each attribute is a header `ce_<name>`, the data's
media type is the header `content-type`. hifi's own headers are ASCII text, so that any Kafka tool can read them.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from hifi.errors import NotAnEvent

Headers: TypeAlias = list[tuple[str, bytes]]

CONTENT_TYPE: Final = "content-type"
TIME: Final = "ce_time"
"""The event's own time, as its sender gave it."""
CE_PREFIX: Final = "ce_"
TRACEPARENT: Final = "ce_traceparent"
"""The sender's trace (W3C Trace Context), where it gave one. Receipts have it too."""

PIPE: Final = "hifi_pipe"
"""Name of the pipe."""
PIPE_VERSION: Final = "hifi_pipe_version"
"""Offset of the pipe's record in the topic `pipes` that ingest knew when it accepted the event."""
SEQ: Final = "hifi_seq"
"""Identity: `<epoch as 16 hex digits>:<sequence>`."""
ACCEPTED: Final = "hifi_accepted"
"""When ingest accepted the event, microseconds since 1970 UTC."""
MINUTE: Final = "hifi_minute"
"""The bucket that the event counts in everywhere, minutes since 1970 UTC."""
IN: Final = "hifi_in"
"""When the service that wrote this record fetched its input, microseconds since 1970 UTC."""
RAW: Final = "hifi_raw"
"""Offset of the event in the topic `raw`, same partition."""
TO: Final = "hifi_to"
"""Names of the destinations that want the event, with commas; empty: filtered out."""
DESTINATION: Final = "hifi_destination"
"""On retries, receipts and dead letters of egest: the delivery's destination."""
PASS: Final = "hifi_pass"  # noqa: S105 - a trip, no password
"""On retries: trips through the retrier so far."""
ATTEMPT: Final = "hifi_attempt"
"""Requests really sent so far for this delivery."""
FIRST_ATTEMPT: Final = "hifi_first_attempt"
"""When the first request for this delivery was sent, microseconds since 1970 UTC."""
AMBIGUOUS: Final = "hifi_ambiguous"
"""On retries, receipts and dead letters of egest: requests so far that may have arrived and got no answer.
Without the header: none, so the delivery arrived at most once."""
DUE: Final = "hifi_due"
"""On retries: the destination wants no request before this, microseconds since 1970 UTC."""
SOURCE: Final = "hifi_source"
"""On retries, receipts and dead letters of egest: what they are the outcome of, `enriched:<offset>` or
`retry-out:<offset>`, same partition."""
RETRY: Final = "hifi_retry"
"""On `retry-out`: where the retrier read it, `<tier>:<offset>`, same partition. A copy has the same."""
REPLAY: Final = "hifi_replay"
"""How often the event was replayed from the dead letters."""
REASON: Final = "hifi_reason"
"""On dead letters and retries: a short stable code of what went wrong."""
DETAIL: Final = "hifi_detail"
"""On dead letters and retries: one sentence for a person."""
POINTER: Final = "hifi_pointer"
"""On dead letters: the JSON pointer (RFC 6901) of what failed."""
SERVICE: Final = "hifi_service"
"""On dead letters: the service that refused the event."""
OUTCOME: Final = "hifi_outcome"
"""On receipts: delivered, filtered, duplicate, retry or dead-letter."""
FIRST: Final = "hifi_first"
"""On receipts of duplicates: where the first copy is, its offset in `raw`, same partition."""
STATUS: Final = "hifi_status"
"""On receipts: the HTTP status of the last answer, if there was one."""
SENT: Final = "hifi_sent"
"""On receipts: when the last request's first byte was sent, microseconds since 1970 UTC."""
ANSWERED: Final = "hifi_answered"
"""On receipts: when the last answer's status line had come, microseconds since 1970 UTC."""
BREAKER: Final = "hifi_breaker"
"""On receipts of egest, once the destination's circuit breaker in that instance has opened: `<state>:<instance>` at
the time of the outcome; the state is `open`, `half-open` or `closed`. Without the header it has never been open."""


class Record(NamedTuple):
    """What goes onto a topic: key, value (None: a marked record without data) and headers."""

    key: bytes | None
    value: bytes | None
    headers: Headers

    def size_bytes(self) -> int:
        """Bytes of key, value and headers, without Kafka's own framing."""
        size = len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:
            size += len(name) + len(value)
        return size


class Identity(NamedTuple):
    """What every hifi record says about its event. Times in microseconds since 1970 UTC, minute in minutes."""

    pipe: str
    pipe_version: int
    epoch: str
    sequence: int
    accepted_us: int
    minute: int


def seq_text(epoch: int, sequence: int) -> bytes:
    """The header `hifi_seq` of a 64-bit epoch and a sequence."""
    return b"%016x:%d" % (epoch, sequence)


def identity(headers: Mapping[str, bytes]) -> Identity:
    """Read what hifi itself wrote at ingest.

    Args:
        headers: name to value, as `dict(record.headers)`.

    Raises:
        NotAnEvent: a header of hifi's is missing or malformed.
    """
    try:
        epoch, _, sequence = headers[SEQ].partition(b":")
        if len(epoch) != 16:
            raise ValueError(SEQ)
        return Identity(
            headers[PIPE].decode("ascii"),
            int(headers[PIPE_VERSION]),
            epoch.decode("ascii"),
            int(sequence),
            int(headers[ACCEPTED]),
            int(headers[MINUTE]),
        )
    except KeyError as missing:
        raise NotAnEvent(f"the header {missing.args[0]} is missing") from None
    except ValueError:
        raise NotAnEvent("a header of hifi's is malformed") from None


def number(headers: Mapping[str, bytes], name: str, default: int | None = None) -> int:
    """The whole number in a header.

    Raises:
        NotAnEvent: the header is not a whole number, or is missing and there is no default.
    """
    value = headers.get(name)
    if value is None:
        if default is None:
            raise NotAnEvent(f"the header {name} is missing")
        return default
    try:
        return int(value)
    except ValueError:
        raise NotAnEvent(f"the header {name} is not a number") from None


def with_headers(headers: Iterable[tuple[str, bytes]], changes: Mapping[str, bytes | None]) -> Headers:
    """A copy of headers in which each name of `changes` is set once, or removed where the value is None."""
    kept = [header for header in headers if header[0] not in changes]
    return kept + [(name, value) for name, value in changes.items() if value is not None]
