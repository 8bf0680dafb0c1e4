"""How an event is stored on a topic: the headers, and the record that carries them.

A record follows the Kafka protocol binding of CloudEvents 1.0, binary content mode: each attribute is a header
`ce_<name>`, the media type of the data is the header `content-type`, and the value is the data. hifi adds headers of
its own, `hifi_<name>`. They are ASCII text, so that any Kafka tool can show them.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from hifi.errors import NotAnEvent

Headers: TypeAlias = list[tuple[str, bytes]]

CONTENT_TYPE: Final = "content-type"
TIME: Final = "ce_time"
"""The event time, as the sender gave it."""
CE_PREFIX: Final = "ce_"
TRACEPARENT: Final = "ce_traceparent"
"""The sender's trace (W3C Trace Context), if it sent one. Receipts have it, too."""

PIPE: Final = "hifi_pipe"
"""Name of the pipe."""
PIPE_VERSION: Final = "hifi_pipe_version"
"""The pipe version that ingest knew when it accepted the event: the offset of its record in the topic `pipes`."""
SEQ: Final = "hifi_seq"
"""The event's identity, `<epoch as 16 hex digits>:<sequence>`."""
ACCEPTED: Final = "hifi_accepted"
"""When ingest accepted the event, microseconds since 1970 UTC."""
MINUTE: Final = "hifi_minute"
"""The minute in which the event is counted by every service, minutes since 1970 UTC."""
IN: Final = "hifi_in"
"""When the service that wrote this record fetched its input, microseconds since 1970 UTC."""
RAW: Final = "hifi_raw"
"""Offset of the event in the topic `raw`, same partition."""
TO: Final = "hifi_to"
"""Names of the event's destinations, separated by commas; empty: filtered out."""
DESTINATION: Final = "hifi_destination"
"""On retries, and on receipts and dead letters of egest: the destination of the delivery."""
PASS: Final = "hifi_pass"  # noqa: S105 - a retry pass, no password
"""On retries: trips through the retrier so far."""
ATTEMPT: Final = "hifi_attempt"
"""Requests that were actually sent for this delivery so far."""
FIRST_ATTEMPT: Final = "hifi_first_attempt"
"""When the first request for this delivery was sent, microseconds since 1970 UTC."""
AMBIGUOUS: Final = "hifi_ambiguous"
"""On retries, and on receipts and dead letters of egest: requests so far that got no response but may have arrived.
Without the header there were none, so the delivery arrived at most once."""
DUE: Final = "hifi_due"
"""On retries: the time before which the destination asked for no request (Retry-After), microseconds since 1970 UTC."""
SOURCE: Final = "hifi_source"
"""On retries, and on receipts and dead letters of egest: the record whose delivery they are the outcome of,
`enriched:<offset>` or `retry-out:<offset>`, same partition."""
RETRY: Final = "hifi_retry"
"""On `retry-out`: the record that the retrier read, `<tier>:<offset>`, same partition. Copies have the same value."""
REPLAY: Final = "hifi_replay"
"""How often the event was replayed from the dead letters."""
REASON: Final = "hifi_reason"
"""On dead letters and retries: a short stable code of the reason."""
DETAIL: Final = "hifi_detail"
"""On dead letters and retries: the reason in one sentence."""
POINTER: Final = "hifi_pointer"
"""On dead letters: the JSON pointer (RFC 6901) of the part that failed."""
SERVICE: Final = "hifi_service"
"""On dead letters: the service that refused the event."""
OUTCOME: Final = "hifi_outcome"
"""On receipts: delivered, filtered, duplicate, retry or dead-letter."""
FIRST: Final = "hifi_first"
"""On receipts of duplicates: the offset in `raw` of the event as it was first sent, same partition."""
STATUS: Final = "hifi_status"
"""On receipts: the HTTP status of the last response, if there was one."""
SENT: Final = "hifi_sent"
"""On receipts: when the first byte of the last request was sent, microseconds since 1970 UTC."""
ANSWERED: Final = "hifi_answered"
"""On receipts: when the status line of the last response was received, microseconds since 1970 UTC."""
BREAKER: Final = "hifi_breaker"
"""On receipts of egest: the state of the destination's circuit breaker at the time of the outcome, `<state>:<instance>`
with state `open`, `half-open` or `closed`. Without the header the breaker of that instance has never been open."""


class Record(NamedTuple):
    """A record to write: key, value (None: an event without its data, such as a filtered one) and headers."""

    key: bytes | None
    value: bytes | None
    headers: Headers

    def size_bytes(self) -> int:
        """Bytes of key, value and headers, without the overhead of Kafka's format."""
        size = len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:
            size += len(name) + len(value)
        return size


class Identity(NamedTuple):
    """The headers that ingest adds to every event. Times in microseconds since 1970 UTC, minute in minutes."""

    pipe: str
    pipe_version: int
    epoch: str
    sequence: int
    accepted_us: int
    minute: int


def seq_text(epoch: int, sequence: int) -> bytes:
    """The value of the header `hifi_seq` for a 64-bit epoch and a sequence number."""
    return b"%016x:%d" % (epoch, sequence)


def identity(headers: Mapping[str, bytes]) -> Identity:
    """Read the headers that ingest added.

    Args:
        headers: name to value, as `dict(record.headers)`.

    Raises:
        NotAnEvent: one of them is missing or malformed.
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
        raise NotAnEvent("one of hifi's own headers is malformed") from None


def number(headers: Mapping[str, bytes], name: str, default: int | None = None) -> int:
    """Read a header as a whole number.

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
    """A copy of headers with `changes` applied: each name is set once, or removed if its value is None."""
    kept = [header for header in headers if header[0] not in changes]
    return kept + [(name, value) for name, value in changes.items() if value is not None]
