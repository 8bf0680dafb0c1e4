"""The one place where an outcome becomes a receipt, a retry or a dead letter, and in the end a finished offset.

Always in this order, each step after the acknowledgement of the one before: the record for the retrier or the dead
letters, the receipt, the offset. So whatever dies, an event is somewhere; at worst it is there twice.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from hifi import metrics
from hifi.clock import MICROSECONDS, now_us
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
from hifi.kafka.consumer import AssignedPartition
from hifi.topics import Topics
from hifi_egest.delivery.delivery import Delivery
from hifi_egest.delivery.lease import Lease
from hifi_egest.policy.outcome import Dead, HandOver
from hifi_egest.receipts.outbox import Outbox

SERVICE = "egest"
_LOOK_S: Final = 0.05
"""While the lease is not held, it is looked at again after this, seconds."""


class Exchange:
    """When a request went out and what came back; times in microseconds since 1970 UTC, 0: there was none."""

    __slots__ = ("answered_us", "sent_us", "status")

    def __init__(self, sent_us: int = 0, status: int = 0, answered_us: int = 0) -> None:
        self.sent_us = sent_us
        self.status = status
        self.answered_us = answered_us


UNSENT = Exchange()


class Settler:
    """Writes outcomes."""

    def __init__(self, topics: Topics, outbox: Outbox, lease: Lease) -> None:
        self._topics = topics
        self._receipts = topics.receipts
        self._outbox = outbox
        self._lease = lease
        self._waiting: list[tuple[AssignedPartition, Callable[[], None]]] = []
        self._look: asyncio.TimerHandle | None = None

    def delivered(self, delivery: Delivery, exchange: Exchange) -> None:
        """The destination has it. This is said even when the partition is another's by now: it is so."""
        self._receipt(delivery, self._headers(delivery, b"delivered", exchange))

    def filtered(self, delivery: Delivery) -> None:
        """No destination wants the event."""
        metrics.OUTCOMES.labels(delivery.event.pipe, "", "filtered").inc()
        self._receipt(delivery, [*delivery.event.identity, (OUTCOME, b"filtered")])

    def hand_over(self, delivery: Delivery, what: HandOver, exchange: Exchange) -> None:
        """To the retrier."""
        due_us = now_us() + int(what.wait_s * MICROSECONDS) if what.wait_s is not None else None
        record = delivery.event.record
        changes = self._progress(delivery) | {
            IN: b"%d" % delivery.event.fetched_us,
            REASON: what.reason.encode(),
            DETAIL: what.detail.encode()[:500],
            DUE: b"%d" % due_us if due_us is not None else None,
            RETRY: None,
        }
        retry = Record(record.key, record.value, with_headers(record.headers, changes))
        self._put_away(self._topics.retry_in(what.tier), retry, delivery, b"retry", what.reason, exchange)

    def dead(self, delivery: Delivery, why: Dead, exchange: Exchange) -> None:
        """To the dead letters."""
        event = delivery.event
        headers = with_headers(event.record.headers, self._progress(delivery) | {RETRY: None, DUE: None})
        letter = dead_letter(
            event.record.key,
            event.record.value,
            headers,
            SERVICE,
            Rejected(why.reason, why.detail),
            event.fetched_us,
        )
        self._put_away(self._topics.dead_letter, letter, delivery, b"dead-letter", why.reason, exchange)

    def receipt_only(self, delivery: Delivery, outcome: bytes, reason: bytes) -> None:
        """The last owner had written the retry or the dead letter, and no receipt any more."""
        self._receipt(delivery, [*self._headers(delivery, outcome, UNSENT), (REASON, reason)])

    def _receipt(self, delivery: Delivery, headers: Headers) -> None:
        event = delivery.event
        receipt = Record(event.record.key, None, headers)
        self._outbox.put(self._receipts, event.partition.number, receipt, delivery.recorded)

    def _put_away(
        self,
        topic: str,
        record: Record,
        delivery: Delivery,
        outcome: bytes,
        reason: str,
        exchange: Exchange,
    ) -> None:
        partition = delivery.event.partition
        if partition.work.fenced:
            delivery.left()  # its next owner reads the event again and does this itself
            return
        if not self._lease.held():
            self._wait(
                partition.work, partial(self._put_away, topic, record, delivery, outcome, reason, exchange)
            )
            return

        def receipt() -> None:
            headers = [*self._headers(delivery, outcome, exchange), (REASON, reason.encode())]
            metrics.OUTCOMES.labels(
                delivery.event.pipe, delivery.destination.decode(), outcome.decode()
            ).inc()
            self._receipt(delivery, headers)

        self._outbox.put(topic, partition.number, record, receipt)

    def _wait(self, work: AssignedPartition, put_away: Callable[[], None]) -> None:
        """Kafka may have given the partition to another member: wait until it is clear."""
        self._waiting.append((work, put_away))
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._look = None
        waiting, self._waiting = self._waiting, []
        held = self._lease.held()
        for work, put_away in waiting:
            if held or work.fenced:
                put_away()
            else:
                self._wait(work, put_away)

    def _progress(self, delivery: Delivery) -> dict[str, bytes | None]:
        event = delivery.event
        return {
            DESTINATION: delivery.destination or None,
            PASS: b"%d" % delivery.passes,
            ATTEMPT: b"%d" % delivery.attempts,
            FIRST_ATTEMPT: b"%d" % delivery.first_us if delivery.first_us else None,
            AMBIGUOUS: b"%d" % delivery.ambiguous if delivery.ambiguous else None,
            SOURCE: b"%b:%d" % (event.partition.source.encode(), event.record.offset),
        }

    @staticmethod
    def _headers(delivery: Delivery, outcome: bytes, exchange: Exchange) -> Headers:
        headers = [
            *delivery.event.identity,
            (DESTINATION, delivery.destination),
            (OUTCOME, outcome),
            (ATTEMPT, b"%d" % delivery.attempts),
            (PASS, b"%d" % delivery.passes),
        ]
        if exchange.status:
            headers.append((STATUS, b"%d" % exchange.status))
            headers.append((ANSWERED, b"%d" % exchange.answered_us))
        if exchange.sent_us:
            headers.append((SENT, b"%d" % exchange.sent_us))
        if delivery.ambiguous:
            headers.append((AMBIGUOUS, b"%d" % delivery.ambiguous))
        if delivery.breaker:
            headers.append((BREAKER, delivery.breaker))
        return headers
