"""Names of the headers that records have, and of the fields that hifi packs into some of them.

A record follows the Kafka protocol binding of CloudEvents 1.0, binary content mode: each attribute is a header
`ce_<name>`, the media type of the data is the header `content-type`, and the value is the data. hifi adds headers of
its own. Fields that every record needs are packed into the first two, so that a service parses two headers instead of
ten; the module of each packed header has its fields in order, and reads and writes it:

    hifi           first, the same on every topic                `hifi.record.identity`
    hifi_hop       second, written anew by each service          `hifi.record.hop`
    hifi_receipt   third, on receipts                            `hifi.record.receipt`
    hifi_position  third, on events that were read from a source `hifi.record.source_position`
    hifi_unmasked  third on `raw`, on events that ingest masked   `UNMASKED`

The same format as Spark SQL is in `hifi.record.spark_sql`. Dead letters, retries and replays have a header for each of
their other fields. All are ASCII text, so that any Kafka tool can show them. A later release may append fields, which
older ones skip; it changes the version in front of `hifi` only where an older release must not read the record, and a
reader refuses a `KIND` of record that it does not know. See docs/decisions/record-format.md.
"""

from typing import Final, TypeAlias

Headers: TypeAlias = list[tuple[str, bytes]]

CONTENT_TYPE: Final = "content-type"
TIME: Final = "ce_time"
"""The event time, as the sender gave it."""
CE_PREFIX: Final = "ce_"
TRACEPARENT: Final = "ce_traceparent"
"""The sender's trace (W3C Trace Context), if it sent one. Receipts have it, too."""

IDENTITY: Final = "hifi"
"""The first header of every record: the format version and what identifies the event."""
HOP: Final = "hifi_hop"
"""The second header of every record: what the service that wrote it adds."""
RECEIPT: Final = "hifi_receipt"
"""The third header of a receipt: the outcome of a delivery."""

# Fields of the packed headers. `hifi.record.fields` shows them under these names; no record has such a header.

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
KIND: Final = "hifi_kind"
"""Kind of the record. Empty: an event. `heartbeat`: see `hifi.record.heartbeat`; `batch` is reserved. Readers refuse a
kind they do not know."""
LOG: Final = "hifi_log"
"""Identity of the log in whose topic `raw` the event stands (`hifi.kafka.topic_identity`). Empty: the log of the topic
that the record is in. It is for records that leave their log."""
IN: Final = "hifi_in"
"""When the service that wrote this record fetched its input, microseconds since 1970 UTC."""
RAW: Final = "hifi_raw"
"""Offset of the event in the topic `raw`, same partition."""
TO: Final = "hifi_to"
"""On `enriched`: names of the event's destinations, separated by commas; empty: filtered out."""
WATCH: Final = "hifi_watch"
"""On `enriched`, if the pipe watches fields: `<watch_id>:<bucket>,<bucket>,…`, a bucket for each of them in declared
order (`hifi.pipe.watched_field`). Events that no destination wants have none."""
INDEX: Final = "hifi_index"
"""Place of the event within a record of `raw` that holds the events of a request, from 0. Empty: 0."""
STAMP: Final = "hifi_stamp"
"""On events that steps read, the highest event time of the earlier events of the pipe in the partition, and on
heartbeats: milliseconds since 1970 UTC."""
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
RELEASE: Final = "hifi_release"
"""On receipts: the release of hifi that recorded the outcome. Empty: one before 0.1.0rc2."""

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

UNMASKED: Final = "hifi_unmasked"
"""The third header on `raw` of an event whose data was masked by ingest: a digest of the data before, keyed with the
sender's write key, so that normalize tells a repetition from other data. normalize leaves it out."""

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
LEFT_OUT: Final = "hifi_left_out"
"""On dead letters that would be too large: `data`: it is left out; `all`: so are key and headers."""
SERVICE: Final = "hifi_service"
"""On dead letters: the service that refused the event."""
STEP: Final = "hifi_step"
"""On dead letters of state: the pipe of the step that did not count the event."""
