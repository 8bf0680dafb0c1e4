"""The records that egest writes for an outcome: retry, dead letter and receipt. Pure."""

from collections.abc import Iterable

from hifi.delivery.dead_letters.record import dead_letter
from hifi.record.event import (
    AMBIGUOUS,
    ATTEMPT,
    DESTINATION,
    DETAIL,
    DUE,
    HOP,
    IN,
    PASS,
    REASON,
    RECEIPT,
    RETRY,
    SOURCE,
    STARTED,
    Record,
    with_fields,
)  # fmt: skip
from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.errors import Rejected
from hifi_egest.delivery.delivery import Attempt, Delivery
from hifi_egest.delivery.event_record import EventRecord
from hifi_egest.policy.outcome import DeadLettered, Parked, RetryLater

SERVICE = "egest"


def waiting_record(delivery: Delivery, outcome: RetryLater | Parked, now_us: int) -> Record:
    """The record for a retry topic or the topic `parked`; `now_us`: microseconds since 1970 UTC."""
    wait_s = outcome.wait_s if isinstance(outcome, RetryLater) else None
    due_us = now_us + int(wait_s * MICROSECONDS) if wait_s is not None else None
    record = delivery.event.record
    changes = _progress(delivery) | {
        IN: b"%d" % delivery.event.fetched_us,
        REASON: outcome.reason.encode(),
        DETAIL: outcome.detail.encode()[:500],
        STARTED: b"%d" % (delivery.started_us or now_us),
        DUE: b"%d" % due_us if due_us is not None else None,
        RETRY: None,
    }
    return Record(record.key, record.value, with_fields(record.headers, changes))


def dead_letter_record(delivery: Delivery, outcome: DeadLettered) -> Record:
    """The record for the dead letters."""
    event = delivery.event
    headers = with_fields(event.record.headers, _progress(delivery) | {RETRY: None, DUE: None})
    why = Rejected(outcome.reason, outcome.detail)
    return dead_letter(event.record.key, event.record.value, headers, SERVICE, why, event.fetched_us)


def filtered_receipt(delivery: Delivery) -> Record:
    """The receipt of an event that no destination wants."""
    event = delivery.event
    return _receipt(event, b"filtered;;%b:%d;;;;;;;;;" % (event.partition.source_name, event.record.offset))


def delivered_receipts(deliveries: Iterable[Delivery], attempt: Attempt) -> list[Record]:
    """The receipts of the deliveries of one successful request."""
    request = _request_fields(attempt)
    return [_receipt(each.event, _fields(each, b"delivered", request, b"")) for each in deliveries]


def receipt(delivery: Delivery, outcome: bytes, attempt: Attempt, reason: bytes) -> Record:
    """The receipt of a delivery that was not delivered.

    Args:
        delivery: that ended, or ended its pass.
        outcome: retry, parked or dead-letter.
        attempt: the last one of this pass.
        reason: stable code.
    """
    return _receipt(delivery.event, _fields(delivery, outcome, _request_fields(attempt), reason))


def _request_fields(attempt: Attempt) -> bytes:
    """Status, time of sending and time of the answer of a request."""
    if attempt.status:
        return b"%d;%d;%d" % (attempt.status, attempt.sent_us, attempt.answered_us)
    return b";%d;" % attempt.sent_us if attempt.sent_us else b";;"


def _fields(delivery: Delivery, outcome: bytes, request: bytes, reason: bytes) -> bytes:
    """The fields of `hifi.record.event.RECEIPT_FIELDS`; the last one, `hifi_first`, is for duplicates."""
    event = delivery.event
    return b"%b;%b;%b:%d;%d;%d;%b;%b;%b;%b;" % (
        outcome,
        delivery.destination,
        event.partition.source_name,
        event.record.offset,
        delivery.passes,
        delivery.attempts,
        request,
        b"%d" % delivery.ambiguous if delivery.ambiguous else b"",
        delivery.breaker,
        reason,
    )


def _receipt(event: EventRecord, text: bytes) -> Record:
    record = event.record
    return Record(
        record.key, None, [record.headers[0], (HOP, event.receipt_hop), (RECEIPT, text), *event.copied]
    )


def _progress(delivery: Delivery) -> dict[str, bytes | None]:
    event = delivery.event
    return {
        DESTINATION: delivery.destination or None,
        PASS: b"%d" % delivery.passes,
        ATTEMPT: b"%d" % delivery.attempts,
        STARTED: b"%d" % delivery.started_us if delivery.started_us else None,
        AMBIGUOUS: b"%d" % delivery.ambiguous if delivery.ambiguous else None,
        SOURCE: b"%b:%d" % (event.partition.source_name, event.record.offset),
    }
