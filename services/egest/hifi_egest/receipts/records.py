"""The records that egest writes for an outcome: retry, dead letter and receipt. Pure."""

from hifi.clock import MICROSECONDS
from hifi.dead_letters.record import dead_letter
from hifi.errors import Rejected
from hifi.event import (
    AMBIGUOUS,
    ANSWERED,
    ATTEMPT,
    BREAKER,
    DESTINATION,
    DETAIL,
    DUE,
    FIRST_ATTEMPT,
    IN,
    OUTCOME,
    PASS,
    REASON,
    RETRY,
    SENT,
    SOURCE,
    STATUS,
    Headers,
    Record,
    with_headers,
)  # fmt: skip
from hifi_egest.delivery.delivery import Attempt, Delivery
from hifi_egest.policy.outcome import DeadLettered, RetryLater

SERVICE = "egest"


def retry_record(delivery: Delivery, outcome: RetryLater, now_us: int) -> Record:
    """The record for a retry topic; `now_us`: microseconds since 1970 UTC."""
    due_us = now_us + int(outcome.wait_s * MICROSECONDS) if outcome.wait_s is not None else None
    record = delivery.event.record
    changes = _progress(delivery) | {
        IN: b"%d" % delivery.event.fetched_us,
        REASON: outcome.reason.encode(),
        DETAIL: outcome.detail.encode()[:500],
        DUE: b"%d" % due_us if due_us is not None else None,
        RETRY: None,
    }
    return Record(record.key, record.value, with_headers(record.headers, changes))


def dead_letter_record(delivery: Delivery, outcome: DeadLettered) -> Record:
    """The record for the dead letters."""
    event = delivery.event
    headers = with_headers(event.record.headers, _progress(delivery) | {RETRY: None, DUE: None})
    why = Rejected(outcome.reason, outcome.detail)
    return dead_letter(event.record.key, event.record.value, headers, SERVICE, why, event.fetched_us)


def filtered_receipt(delivery: Delivery) -> Record:
    """The receipt of an event that no destination wants."""
    event = delivery.event
    return Record(event.record.key, None, [*event.receipt_headers, (OUTCOME, b"filtered")])


def receipt(delivery: Delivery, outcome: bytes, attempt: Attempt, reason: bytes | None = None) -> Record:
    """The receipt of a delivery.

    Args:
        delivery: that ended, or ended its pass.
        outcome: delivered, retry or dead-letter.
        attempt: the last one of this pass.
        reason: stable code of a retry or a dead letter.
    """
    headers: Headers = [
        *delivery.event.receipt_headers,
        (DESTINATION, delivery.destination),
        (OUTCOME, outcome),
        (ATTEMPT, b"%d" % delivery.attempts),
        (PASS, b"%d" % delivery.passes),
    ]
    if attempt.status:
        headers.append((STATUS, b"%d" % attempt.status))
        headers.append((ANSWERED, b"%d" % attempt.answered_us))
    if attempt.sent_us:
        headers.append((SENT, b"%d" % attempt.sent_us))
    if delivery.ambiguous:
        headers.append((AMBIGUOUS, b"%d" % delivery.ambiguous))
    if delivery.breaker:
        headers.append((BREAKER, delivery.breaker))
    if reason is not None:
        headers.append((REASON, reason))
    return Record(delivery.event.record.key, None, headers)


def _progress(delivery: Delivery) -> dict[str, bytes | None]:
    event = delivery.event
    return {
        DESTINATION: delivery.destination or None,
        PASS: b"%d" % delivery.passes,
        ATTEMPT: b"%d" % delivery.attempts,
        FIRST_ATTEMPT: b"%d" % delivery.first_us if delivery.first_us else None,
        AMBIGUOUS: b"%d" % delivery.ambiguous if delivery.ambiguous else None,
        SOURCE: b"%b:%d" % (event.partition.source.encode(), event.record.offset),
    }
