"""The header `hifi_receipt`, which receipts have third: the outcome of a delivery. Pure.

    <outcome>;<destination>;<source>;<pass>;<attempt>;<status>;<sent>;<answered>;<ambiguous>;<breaker>;<reason>;<first>;
    <release>

A field that does not apply is empty. This module is the one place of the order of the fields.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from hifi.record.headers import (
    AMBIGUOUS,
    ANSWERED,
    ATTEMPT,
    BREAKER,
    DESTINATION,
    FIRST,
    OUTCOME,
    PASS,
    REASON,
    RECEIPT,
    RELEASE,
    SENT,
    SOURCE,
    STATUS,
)
from hifi.record.packed_text import SEPARATOR, is_number
from hifi.runtime.errors import NotAnEvent
from hifi.runtime.release import VERSION

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
    RELEASE,
)
"""The fields in order."""

# Places of the fields in what `split_receipt` returns.
OUTCOME_AT: Final = RECEIPT_FIELDS.index(OUTCOME)
DESTINATION_AT: Final = RECEIPT_FIELDS.index(DESTINATION)
PASS_AT: Final = RECEIPT_FIELDS.index(PASS)
STATUS_AT: Final = RECEIPT_FIELDS.index(STATUS)
SENT_AT: Final = RECEIPT_FIELDS.index(SENT)
ANSWERED_AT: Final = RECEIPT_FIELDS.index(ANSWERED)
BREAKER_AT: Final = RECEIPT_FIELDS.index(BREAKER)
REASON_AT: Final = RECEIPT_FIELDS.index(REASON)

THIS_RELEASE: Final = VERSION.encode()
"""The field `RELEASE` of receipts that this release writes."""
_FIELD_COUNT: Final = len(RECEIPT_FIELDS)


def source_text(topic: bytes, offset: int) -> bytes:
    """The field `SOURCE`: `enriched` or `retry-out`, and the offset of the record there."""
    return b"%b:%d" % (topic, offset)


def parse_source(text: bytes) -> tuple[bytes, int] | None:
    """Read the field `SOURCE`: the topic and the offset; None: it is malformed."""
    topic, _, offset = text.partition(b":")
    return (topic, int(offset)) if is_number(offset) else None


def request_text(status: int = 0, sent_us: int = 0, answered_us: int = 0) -> bytes:
    """The three fields of the last request, which the deliveries of one request share; 0: the field is empty.

    Args:
        status: of the response; without one there is no time of the answer either.
        sent_us: when the first byte was sent, microseconds since 1970 UTC.
        answered_us: when the status line was received, likewise.
    """
    if status:
        return b"%d;%d;%d" % (status, sent_us, answered_us)
    return b";%d;" % sent_us if sent_us else b";;"


def receipt_text(
    outcome: bytes,
    destination: bytes,
    source: bytes,
    offset: int,
    passes: int,
    attempts: int,
    request: bytes,
    ambiguous: int,
    breaker: bytes,
    reason: bytes,
) -> bytes:
    """The value of the header for the outcome of a delivery, with this release.

    Args:
        outcome: see `OUTCOME`.
        destination: name of it.
        source: `enriched` or `retry-out`, where the record is from.
        offset: of the record there.
        passes: see `PASS`.
        attempts: see `ATTEMPT`.
        request: from `request_text`.
        ambiguous: see `AMBIGUOUS`.
        breaker: see `BREAKER`.
        reason: see `REASON`.
    """
    return b"%b;%b;%b:%d;%d;%d;%b;%b;%b;%b;;%b" % (
        outcome,
        destination,
        source,
        offset,
        passes,
        attempts,
        request,
        b"%d" % ambiguous if ambiguous else b"",
        breaker,
        reason,
        THIS_RELEASE,
    )


def pack_receipt(fields: Mapping[str, bytes]) -> bytes:
    """The value of the header with some fields; the others are empty."""
    return SEPARATOR.join([fields.get(name, b"") for name in RECEIPT_FIELDS])


def split_receipt(headers: Sequence[tuple[str, bytes | None]]) -> list[bytes]:
    """Split the header into its fields, and any that a later release appended; missing ones are empty.

    Args:
        headers: of a record, in their order.

    Raises:
        NotAnEvent: the third header is another one, or has no value.
    """
    name, header = headers[2] if len(headers) > 2 else ("", None)
    if name != RECEIPT or header is None:
        raise NotAnEvent(f"the third header is not {RECEIPT}, or has no value")
    texts = header.split(SEPARATOR)
    if len(texts) < _FIELD_COUNT:
        texts += [b""] * (_FIELD_COUNT - len(texts))
    return texts
