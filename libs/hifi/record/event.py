"""How an event is stored on a topic: the headers, and the record that carries them.

A record follows the Kafka protocol binding of CloudEvents 1.0, binary content mode: each attribute is a header
`ce_<name>`, the media type of the data is the header `content-type`, and the value is the data. hifi adds headers of
its own. What every record needs is packed into the first two, so that a service parses two headers instead of ten:

    hifi      1;<pipe>;<revision>;<its offset>;<accepted>;<minute>;<epoch>:<sequence>[;<origin>]  same on every topic
    hifi_hop  <in>;<raw>;<to>;<watch>                                                written anew by each service

Receipts have `hifi_receipt` in addition; dead letters, retries and replays have a header for each of their fields. All
are ASCII text, so that any Kafka tool can show them. A later release may append fields, which older ones skip; it
changes the number in front only where an older release must not read the record. See docs/decisions/record-format.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from hifi.runtime.errors import NotAnEvent

Headers: TypeAlias = list[tuple[str, bytes]]

CONTENT_TYPE: Final = "content-type"
TIME: Final = "ce_time"
"""The event time, as the sender gave it."""
CE_PREFIX: Final = "ce_"
TRACEPARENT: Final = "ce_traceparent"
"""The sender's trace (W3C Trace Context), if it sent one. Receipts have it, too."""

IDENTITY: Final = "hifi"
"""The first header of every record: the format version and the fields of `Identity`."""
HOP: Final = "hifi_hop"
"""The second header of every record: the fields of `Hop`."""
RECEIPT: Final = "hifi_receipt"
"""The third header of a receipt: the fields of `Receipt`."""
FORMAT: Final = 1
"""The version of the three packed headers."""

# Fields of the packed headers. `fields` shows them under these names; no record has a header of such a name.

PIPE: Final = "hifi_pipe"
"""Name of the pipe."""
REVISION: Final = "hifi_revision"
"""Number of the pipe's revision with which the event was accepted; each pipe counts its own from 1."""
REVISION_OFFSET: Final = "hifi_revision_offset"
"""Offset in the topic `pipes` of the record with which that revision was published. A service handles the event once it
has read the topic up to there."""
SEQ: Final = "hifi_seq"
"""The event's identity, `<epoch as 16 hex digits>:<sequence>`."""
ACCEPTED: Final = "hifi_accepted"
"""When ingest accepted the event, microseconds since 1970 UTC."""
MINUTE: Final = "hifi_minute"
"""The minute in which the event is counted by every service, minutes since 1970 UTC."""
ORIGIN: Final = "hifi_origin"
"""`backfill`: collect read the event while it caught up with a source; without a value the field is left out."""
IN: Final = "hifi_in"
"""When the service that wrote this record fetched its input, microseconds since 1970 UTC."""
RAW: Final = "hifi_raw"
"""Offset of the event in the topic `raw`, same partition."""
TO: Final = "hifi_to"
"""On `enriched`: names of the event's destinations, separated by commas; empty: filtered out."""
WATCH: Final = "hifi_watch"
"""On `enriched`, if the pipe watches fields: `<watch_id>:<bucket>,<bucket>,…`, a bucket for each of them in declared
order (`hifi.pipe.watched_field`). Events that no destination wants have none."""
OUTCOME: Final = "hifi_outcome"
"""On receipts: delivered, filtered, duplicate, retry, parked or dead-letter."""
STATUS: Final = "hifi_status"
"""On receipts: the HTTP status of the last response, if there was one."""
SENT: Final = "hifi_sent"
"""On receipts: when the first byte of the last request was sent, microseconds since 1970 UTC."""
ANSWERED: Final = "hifi_answered"
"""On receipts: when the status line of the last response was received, microseconds since 1970 UTC."""
BREAKER: Final = "hifi_breaker"
"""On receipts of egest: the state of the destination's circuit breaker at the time of the outcome, `<state>:<instance>`
with state `open`, `half-open` or `closed`. Empty: the breaker of that instance has never been open."""
FIRST: Final = "hifi_first"
"""On receipts of duplicates: the offset in `raw` of the event as it was first sent, same partition."""

# Fields of receipts, and headers of retries and of dead letters of egest.

DESTINATION: Final = "hifi_destination"
"""The destination of the delivery."""
PASS: Final = "hifi_pass"  # noqa: S105 - a retry pass, no password
"""Trips through the retrier so far."""
ATTEMPT: Final = "hifi_attempt"
"""Requests that were actually sent for this delivery so far."""
AMBIGUOUS: Final = "hifi_ambiguous"
"""Requests so far that got no response but may have arrived. Absent: none, so the delivery arrived at most once."""
SOURCE: Final = "hifi_source"
"""The record whose delivery this is the outcome of, `enriched:<offset>` or `retry-out:<offset>`, same partition."""
REASON: Final = "hifi_reason"
"""A short stable code of the reason. All dead letters have it."""

# Header of events that were read from a source.

POSITION: Final = "hifi_position"
"""The third header of an event that was read from a source: the fields of `SourcePosition`."""

REFUSED: Final = "hifi_refused"
"""On events of a source that cannot be read: `<reason>;<detail>` of the dead letter that normalize writes."""

# Headers of retries, dead letters and replays.

STARTED: Final = "hifi_started"
"""When the delivery began: its first request, or its first hand-over to the retrier if no request was sent before,
microseconds since 1970 UTC. `max_age` counts from here."""
DUE: Final = "hifi_due"
"""On retries: the time before which the destination asked for no request (Retry-After), microseconds since 1970 UTC."""
RETRY: Final = "hifi_retry"
"""On `retry-out`: the record that the retrier read, same partition. Copies have the same value. `<tier>:<offset>`; or
`parked/<offset>`, without a colon because destinations are brought back in any order: these offsets do not ascend."""
REPLAY: Final = "hifi_replay"
"""How often the event was replayed from the dead letters. Receipts of replayed events have it, too."""
DETAIL: Final = "hifi_detail"
"""On dead letters and retries: the reason in one sentence."""
POINTER: Final = "hifi_pointer"
"""On dead letters: the JSON pointer (RFC 6901) of the part that failed."""
SERVICE: Final = "hifi_service"
"""On dead letters: the service that refused the event."""

IDENTITY_FIELDS: Final = (PIPE, REVISION, REVISION_OFFSET, ACCEPTED, MINUTE, SEQ)
"""The fields of the header `hifi` after the format version, in order. `ORIGIN` may follow them."""
BACKFILL: Final = b"backfill"
"""The value of `ORIGIN`."""
HOP_FIELDS: Final = (IN, RAW, TO, WATCH)
"""The fields of the header `hifi_hop`, in order."""
RECEIPT_FIELDS: Final = (
    OUTCOME,
    DESTINATION,
    SOURCE,
    PASS,
    ATTEMPT,
    STATUS,
    SENT,
    ANSWERED,
    AMBIGUOUS,
    BREAKER,
    REASON,
    FIRST,
)
"""The fields of the header `hifi_receipt`, in order. A field that does not apply is empty."""

_PACKED: Final = {IDENTITY: (*IDENTITY_FIELDS, ORIGIN), HOP: HOP_FIELDS, RECEIPT: RECEIPT_FIELDS}
_FORMAT_TEXT: Final = b"%d" % FORMAT
_EPOCH_DIGITS: Final = 16


class Record(NamedTuple):
    """A record to write: key, value (None: an event without its data, such as a filtered one) and headers."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def sizes_bytes(records: Sequence[Record]) -> list[int]:
    """Bytes of key, value and headers of each record, without the overhead of Kafka's format."""
    texts = [sum([len(name) + len(value) for name, value in one.headers]) for one in records]
    return [len(one.key or b"") + len(one.value or b"") + size for one, size in zip(records, texts)]  # noqa: B905


class Identity(NamedTuple):
    """What ingest adds to every event."""

    pipe: str
    """Name of the pipe."""
    revision: int
    """See `REVISION`."""
    revision_offset: int
    """See `REVISION_OFFSET`."""
    accepted_us: int
    """Microseconds since 1970 UTC."""
    minute: int
    """Minutes since 1970 UTC."""
    seq: bytes
    """`<epoch as 16 hex digits>:<sequence>`."""


class Hop(NamedTuple):
    """What the service that wrote a record adds to it."""

    in_us: int
    """When that service fetched its input, microseconds since 1970 UTC."""
    raw: int = -1
    """Offset of the event in `raw`; -1: the record is on `raw` itself."""
    to: bytes | None = None
    """See `TO`; None: the record is not on `enriched`."""


class SourcePosition(NamedTuple):
    """Where an event was read from a source. It is the same, but for the run, each time the event is read."""

    run: bytes
    """16 hex digits, random for each stretch in which one reader read the source partition without going back."""
    position: int
    """Of the event within the source partition, such as an offset. Within a run positions rise."""
    source: bytes
    """Name of the source partition, such as `kafka/<cluster id>/<topic>/<topic id>/<partition>`."""


def position_header(run: bytes, position: int, source: bytes) -> tuple[str, bytes]:
    """The header `hifi_position`; the arguments are the fields of `SourcePosition`."""
    return POSITION, b"%b;%d;%b" % (run, position, source)


def source_position(headers: Sequence[tuple[str, bytes]]) -> SourcePosition | None:
    """Read the header `hifi_position`; None: the event was not read from a source.

    Args:
        headers: of a record, in their order.

    Raises:
        NotAnEvent: it is malformed.
    """
    if len(headers) < 3 or headers[2][0] != POSITION:
        return None
    try:
        run, position, source = headers[2][1].split(b";", 2)
        return SourcePosition(run, int(position), source)
    except ValueError:
        raise NotAnEvent(f"the header {POSITION} is malformed") from None


def seq_text(epoch: int, sequence: int) -> bytes:
    """The identity of an event for a 64-bit epoch and a sequence number."""
    return b"%016x:%d" % (epoch, sequence)


def identity_prefix(pipe: str, revision: int, revision_offset: int, accepted_us: int) -> bytes:
    """The part of the header `hifi` that the events of a request share; minute, `;` and identity follow it."""
    return b"%d;%b;%d;%d;%d;" % (FORMAT, pipe.encode("ascii"), revision, revision_offset, accepted_us)


def with_revision(headers: Headers, revision: int, revision_offset: int) -> Headers:
    """Headers of an event with another revision of its pipe; fields that a later release appended stay.

    Args:
        headers: of a record, in their order, whose header `hifi` is well-formed.
        revision: see `REVISION`.
        revision_offset: see `REVISION_OFFSET`.
    """
    parts = identity_header(headers).split(b";")
    parts[2:4] = b"%d" % revision, b"%d" % revision_offset
    return [(IDENTITY, b";".join(parts)), *headers[1:]]


def identity_header(headers: Sequence[tuple[str, bytes]]) -> bytes:
    """The value of the header `hifi`, without a check of its content.

    Args:
        headers: of a record, in their order.

    Raises:
        NotAnEvent: the first header is another one.
    """
    if not headers or headers[0][0] != IDENTITY:
        raise NotAnEvent(f"the first header is not {IDENTITY}")
    return headers[0][1]


def identity(headers: Sequence[tuple[str, bytes]]) -> Identity:
    """Read the header `hifi`.

    Args:
        headers: of a record, in their order.

    Raises:
        NotAnEvent: it is missing or malformed, or its format is not known here.
    """
    return parse_identity(identity_header(headers))


def parse_identity(value: bytes) -> Identity:
    """Read the value of the header `hifi`. Fields that a later release appended are skipped.

    Raises:
        NotAnEvent: it is malformed, or its format is not known here.
    """
    parts = value.split(b";")
    if parts[0] != _FORMAT_TEXT:
        raise NotAnEvent(f"the header {IDENTITY} has a format other than {FORMAT}, which this release reads")
    try:
        seq = parts[6]
        if seq[_EPOCH_DIGITS : _EPOCH_DIGITS + 1] != b":":
            raise ValueError(SEQ)
        int(seq[_EPOCH_DIGITS + 1 :])
        pipe = parts[1].decode("ascii")
        return Identity(pipe, int(parts[2]), int(parts[3]), int(parts[4]), int(parts[5]), seq)
    except (IndexError, ValueError):
        raise NotAnEvent(f"the header {IDENTITY} is malformed") from None


def hop(headers: Sequence[tuple[str, bytes]]) -> Hop:
    """Read the header `hifi_hop`.

    Args:
        headers: of a record, in their order.

    Raises:
        NotAnEvent: it is missing or malformed.
    """
    if len(headers) < 2 or headers[1][0] != HOP:
        raise NotAnEvent(f"the second header is not {HOP}")
    parts = headers[1][1].split(b";")
    try:
        in_us = int(parts[0])
        raw = int(parts[1]) if len(parts) > 1 and parts[1] else -1
    except ValueError:
        raise NotAnEvent(f"the header {HOP} is malformed") from None
    return Hop(in_us, raw, parts[2] if len(parts) > 2 else None)


def fields(headers: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """All headers of a record by name, packed ones as their fields, empty fields left out.

    For records that are rare or shown to a person; services that handle every event read the packed headers. A packed
    header that cannot be read stays as it is.
    """
    found: dict[str, bytes] = {}
    for name, value in headers:
        unpacked = _unpacked(name, value)
        if unpacked is None:
            found[name] = value
        else:
            found.update(unpacked)
    return found


def _unpacked(name: str, value: bytes) -> dict[str, bytes] | None:
    """The fields of a packed header; None where it is none or cannot be read."""
    if name == IDENTITY:
        version, _, rest = value.partition(b";")
        parts = rest.split(b";")
        readable = version == _FORMAT_TEXT and len(parts) >= len(IDENTITY_FIELDS)
        known = dict(zip(_PACKED[IDENTITY], parts, strict=False))
        return {field: text for field, text in known.items() if text or field != ORIGIN} if readable else None
    if name == HOP:
        parts = value.split(b";")
        known = dict(zip(HOP_FIELDS, parts, strict=False))
        return {field: text for field, text in known.items() if text or field == TO}
    if name == RECEIPT:
        known = dict(zip(RECEIPT_FIELDS, value.split(b";"), strict=False))
        return {field: text for field, text in known.items() if text}
    return None


def packed(found: Mapping[str, bytes]) -> Headers:
    """The headers of a record with these fields: the opposite of `fields`.

    Without all fields of the identity there is no header `hifi`: the record is not an event.
    """
    rest = dict(found)
    made: Headers = []
    if all(name in rest for name in IDENTITY_FIELDS):
        values = [_FORMAT_TEXT, *(rest.pop(name) for name in _PACKED[IDENTITY] if name in rest)]
        made.append((IDENTITY, b";".join(values)))
    if IN in rest:
        last = max(index for index, field in enumerate(HOP_FIELDS) if field in rest)
        made.append((HOP, b";".join([rest.pop(name, b"") for name in HOP_FIELDS[: last + 1]])))
    if OUTCOME in rest:
        made.append((RECEIPT, b";".join([rest.pop(name, b"") for name in RECEIPT_FIELDS])))
    return made + list(rest.items())


def number(found: Mapping[str, bytes], name: str, default: int | None = None) -> int:
    """Read a header or field as a whole number.

    Raises:
        NotAnEvent: it is not a whole number, or is missing and there is no default.
    """
    value = found.get(name)
    if value is None:
        if default is None:
            raise NotAnEvent(f"the header {name} is missing")
        return default
    try:
        return int(value)
    except ValueError:
        raise NotAnEvent(f"the header {name} is not a number") from None


def with_fields(headers: Iterable[tuple[str, bytes]], changes: Mapping[str, bytes | None]) -> Headers:
    """A copy of headers with some fields changed; packed headers without a changed field stay byte for byte.

    Args:
        headers: of a record.
        changes: name of a header, or of a field of a packed one, to its value; None removes it.
    """
    changed: dict[str, bytes] = {name: value for name, value in changes.items() if value is not None}
    kept: Headers = []
    for name, value in headers:
        unpacked = _unpacked(name, value) if not changes.keys().isdisjoint(_PACKED.get(name, ())) else None
        if unpacked is not None:
            changed = {field: text for field, text in unpacked.items() if field not in changes} | changed
        elif name not in changes:
            kept.append((name, value))
    made = packed(changed)
    # The packed headers come first, in this order.
    first = {name: (name, value) for name, value in [*kept, *made] if name in _PACKED}
    head = [first[name] for name in _PACKED if name in first]
    return head + [header for header in [*kept, *made] if header[0] not in first]
