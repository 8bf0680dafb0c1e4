"""The records that egest writes for an outcome: retry, dead letter, which is counted, and receipt."""

from collections.abc import Sequence

from hifi.delivery.attempt import Attempt
from hifi.delivery.dead_letters.record import dead_letter
from hifi.record.fields import with_fields
from hifi.record.headers import (
    AMBIGUOUS,
    ATTEMPT,
    DESTINATION,
    DETAIL,
    DUE,
    HOP,
    IN,
    OUTCOME,
    PASS,
    REASON,
    RECEIPT,
    RELEASE,
    RETRY,
    SOURCE,
    STARTED,
)
from hifi.record.receipt import THIS_RELEASE, pack_receipt, receipt_text, request_text, source_text
from hifi.record.record import Record
from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.errors import Rejected
from hifi_egest.delivery.delivery import Delivery, EventRecord
from hifi_egest.policy.outcome import DeadLettered, Filtered, HandedOver, Outcome, Parked, RetryLater

SERVICE = "egest"


def hand_over_record(delivery: Delivery, outcome: HandedOver, now_us: int) -> Record:
    """The record of an outcome that has one beside its receipt; `now_us`: microseconds since 1970 UTC."""
    if isinstance(outcome, DeadLettered):
        return _dead_letter(delivery, outcome)
    return _retry_or_parked(delivery, outcome, now_us)


def receipts(
    deliveries: Sequence[Delivery], outcome: Outcome, attempt: Attempt, breaker: bytes
) -> list[Record]:
    """The receipts of deliveries with the same outcome; see `hifi.record.receipt`.

    Args:
        deliveries: that ended, or ended their pass.
        outcome: of them.
        attempt: the last one of this pass.
        breaker: state of the destination's circuit breaker; empty: it has never opened.
    """
    if isinstance(outcome, Filtered):
        return [_filtered(delivery.event) for delivery in deliveries]
    name, reason = outcome.name, outcome.reason.encode()
    request_fields = request_text(attempt.status, attempt.sent_us, attempt.answered_us)
    receipt_records: list[Record] = []
    for delivery in deliveries:
        event = delivery.event
        record = event.record
        text = receipt_text(
            name,
            delivery.destination,
            event.partition.source_name,
            record.offset,
            delivery.passes,
            delivery.attempts,
            request_fields,
            delivery.ambiguous,
            breaker,
            reason,
        )
        headers = [record.headers[0], (HOP, event.receipt_hop), (RECEIPT, text), *event.copied]
        receipt_records.append(Record(record.key, None, headers))
    return receipt_records


def _retry_or_parked(delivery: Delivery, outcome: RetryLater | Parked, now_us: int) -> Record:
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


def _dead_letter(delivery: Delivery, outcome: DeadLettered) -> Record:
    event = delivery.event
    headers = with_fields(event.record.headers, _progress(delivery) | {RETRY: None, DUE: None})
    rejection = Rejected(outcome.reason, outcome.detail)
    return dead_letter(event.record.key, event.record.value, headers, SERVICE, rejection, event.fetched_us)


def _filtered(event: EventRecord) -> Record:
    record = event.record
    text = pack_receipt({OUTCOME: b"filtered", SOURCE: _source(event), RELEASE: THIS_RELEASE})
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
        SOURCE: _source(event),
    }


def _source(event: EventRecord) -> bytes:
    return source_text(event.partition.source_name, event.record.offset)
