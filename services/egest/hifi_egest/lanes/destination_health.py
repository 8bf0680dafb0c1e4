"""The health of a destination, from its answers: circuit breaker, pause, refusals.

It decides what a request leads to: another attempt, a hand-over to the retrier, dead letters, or a split of its batch.
Methods return the steps that follow; `FailureHandling` takes them.
"""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hifi.delivery.answer import Answer, NoResponse, RefusedWrite
from hifi.delivery.attempt import Attempt
from hifi.delivery.sender import SplitBatch
from hifi.kafka.topics import Tier
from hifi.pipe.model import Destination
from hifi.runtime import log, metrics
from hifi.runtime.clock import MICROSECONDS, now_us
from hifi_egest.delivery.delivery import Delivery, OutboundRequest
from hifi_egest.policy import outcome
from hifi_egest.policy.breaker import BreakerState, CircuitBreaker, Permit
from hifi_egest.policy.outcome import (
    AttemptCounts,
    DeadLettered,
    Deferral,
    RetryLater,
    RetryLocally,
    Unclear,
)
from hifi_egest.policy.refusal_streak import RefusalStreak

logger = log.get(__name__)


class Conclusion(NamedTuple):
    """The outcome of a delivery that was not delivered. `attempt`: the last one of this pass."""

    delivery: Delivery
    outcome: RetryLater | DeadLettered
    attempt: Attempt


class FailureDecision(NamedTuple):
    """The steps after a failed request, in this order.

    Attributes:
        conclusions: outcomes to record.
        hand_over_waiting: the destination accepts nothing for now: hand over everything that waits in the lane.
        resend: request to send again; None: the request is finished.
        after_s: delay before that, seconds.
    """

    conclusions: Sequence[Conclusion]
    hand_over_waiting: bool = False
    resend: OutboundRequest | None = None
    after_s: float = 0.0


class DestinationHealth:
    """The health of one lane's destination."""

    def __init__(
        self,
        pipe: str,
        destination: Destination,
        tiers: Sequence[Tier],
        longest_pause_s: float,
        *,
        ever_open: bool = False,
    ) -> None:
        """Start with a healthy destination.

        Args:
            pipe: name.
            destination: as declared.
            tiers: of the retrier, ascending.
            longest_pause_s: during a longer pause deliveries go to the retrier instead of waiting, seconds.
            ever_open: the circuit breaker of the lane's earlier declaration has been open.
        """
        self._policy = destination.retry
        self._tiers = tiers
        self._longest_pause_s = longest_pause_s
        self.breaker = CircuitBreaker(destination.breaker.failures, destination.breaker.probe)
        """Asked for a permit before each request."""
        self._streak: RefusalStreak[tuple[OutboundRequest, Attempt]] = RefusalStreak(
            destination.breaker.failures
        )
        self.paused_until_s = 0.0
        """End of the pause that the destination asked for, monotonic seconds."""
        self.ever_open = ever_open
        """The circuit breaker has been open, or the destination paused: receipts report the state from then on."""
        self._log_fields = {"pipe": pipe, "destination": destination.name}
        self._labels = pipe, destination.name
        self._gauge = metrics.BREAKER_OPEN.labels(*self._labels)
        self._gauge.set(0)

    # Before a request

    def deferral(self, now_s: float) -> Deferral | None:
        """The reason why a delivery should go to the retrier without a request; None: queue it."""
        if self.breaker.state is not BreakerState.CLOSED and self.breaker.refuses(now_s):
            return Deferral("breaker-open", "the destination keeps failing; its circuit breaker is open")
        if self.paused_until_s > now_s and self.paused_until_s - now_s > self._longest_pause_s:
            return Deferral("paused", "the destination asked for a pause", self.paused_until_s - now_s)
        return None

    def is_paused(self, now_s: float) -> bool:
        """Whether the destination asked for no requests now."""
        return self.paused_until_s > now_s and self.breaker.state is BreakerState.CLOSED

    # After a request

    def succeeded(self, permit: Permit, now_s: float) -> Sequence[Conclusion]:
        """Report a successful request; returns outcomes of earlier deliveries that it clarifies."""
        self._report_to_breaker(permit, ok=True, now_s=now_s)
        return self._end_streak() if self._streak.status else ()

    def failed(
        self,
        request: OutboundRequest,
        result: Answer | NoResponse | RefusedWrite,
        attempt: Attempt,
        now_s: float,
    ) -> FailureDecision:
        """Decide what happens after a failed request."""
        deliveries = request.deliveries
        counts = [attempt_counts(delivery, now_s) for delivery in deliveries]
        largest_counts = AttemptCounts(
            max(count.attempts for count in counts),
            max(count.local for count in counts),
            max(count.age_s for count in counts),
            max(count.pass_age_s for count in counts),
            max(count.passes for count in counts),
        )
        next_step = outcome.decide(
            result,
            self._policy,
            largest_counts,
            self._tiers,
            jitter=random.random(),  # noqa: S311 - spreads retries
            batch=len(deliveries),
            local=request.active,
        )
        if isinstance(next_step, Unclear):
            return self._after_unclear_answer(request, next_step.status, attempt, now_s)
        conclusions = self._end_streak() if isinstance(result, Answer) and self._streak.status else []
        recoverable = outcome.recoverable(result, self._policy)
        if isinstance(next_step, SplitBatch) and recoverable and self._may_split(request):
            # The requests that follow show whether the destination fails.
            request.discount_attempt()
            return FailureDecision(conclusions, resend=request.split())
        opened = self._report_to_breaker(request.permit, ok=not recoverable, now_s=now_s)
        paused = recoverable and isinstance(result, Answer) and self._apply_pause(result, now_s)
        hand_over_waiting = opened or paused
        if isinstance(next_step, RetryLocally) and self.deferral(now_s) is None:
            return FailureDecision(conclusions, hand_over_waiting, request, next_step.after_s)
        if isinstance(next_step, SplitBatch) and not recoverable:
            return FailureDecision(conclusions, hand_over_waiting, request.split())
        for delivery, count in zip(deliveries, counts, strict=True):
            delivery_outcome = outcome.decide(
                result, self._policy, count, self._tiers, jitter=0.0, local=False
            )
            assert isinstance(delivery_outcome, RetryLater | DeadLettered)
            conclusions.append(Conclusion(delivery, delivery_outcome, attempt))
        return FailureDecision(conclusions, hand_over_waiting)

    def _may_split(self, request: OutboundRequest) -> bool:
        """Whether the events of a batch that failed are sent apart, rather than after the destination has recovered."""
        return (
            request.permit is not Permit.PROBE
            and self.breaker.state is BreakerState.CLOSED
            and request.active
        )

    @property
    def holding(self) -> bool:
        """Whether refused deliveries are held until it is clear what is at fault; call `overdue` then."""
        return self._streak.holding

    def overdue(self, now_s: float) -> list[Conclusion]:
        """Outcomes of the refused deliveries that were held for the maximum time: dead letters."""
        return _events_at_fault(self._streak.overdue(now_s))

    def release_held(self) -> list[Conclusion]:
        """Outcomes of all held deliveries: they are retried later, because it is not clear what is at fault."""
        return self._destination_at_fault(self._streak.release())

    def retire(self) -> list[Conclusion]:
        """Remove the breaker's metric of a deleted destination; returns the outcomes of all held deliveries."""
        metrics.BREAKER_OPEN.remove(*self._labels)  # a 0 would become 1 again with a late failure
        return self.release_held()

    def without_request(
        self, delivery: Delivery, deferral: Deferral, now_s: float
    ) -> RetryLater | DeadLettered:
        """The outcome of a delivery for which no request is sent."""
        age_s = attempt_counts(delivery, now_s).age_s
        wait_s = None if deferral.wait_s is None else min(deferral.wait_s, self._policy.max_pause)
        return outcome.too_old(self._policy, age_s, delivery.attempts) or outcome.retry_later(
            deferral.reason,
            deferral.detail,
            delivery.passes,
            self._tiers,
            wait_s,
            self._policy.max_age - age_s,
        )

    def _after_unclear_answer(
        self, request: OutboundRequest, status: int, attempt: Attempt, now_s: float
    ) -> FailureDecision:
        if request.permit is Permit.PROBE:
            opened = self._report_to_breaker(request.permit, ok=False, now_s=now_s)
            return FailureDecision(self._destination_at_fault([(request, attempt)]), opened)
        events_at_fault, destination_at_fault = self._streak.refused((request, attempt), status, now_s)
        conclusions = _events_at_fault(events_at_fault)
        if destination_at_fault:
            self.breaker.trip(now_s)
            self._show_breaker_open(f"{status} again and again")
            conclusions += self._destination_at_fault(destination_at_fault)
        return FailureDecision(conclusions, hand_over_waiting=bool(destination_at_fault))

    def _end_streak(self) -> list[Conclusion]:
        return _events_at_fault(self._streak.end())

    def _destination_at_fault(self, refusals: Iterable[tuple[OutboundRequest, Attempt]]) -> list[Conclusion]:
        return [
            Conclusion(
                delivery,
                outcome.retry_later(
                    f"status-{attempt.status}",
                    f"the destination answers {attempt.status} to everything",
                    delivery.passes,
                    self._tiers,
                ),
                attempt,
            )
            for request, attempt in refusals
            for delivery in request.deliveries
        ]

    def _report_to_breaker(self, permit: Permit, *, ok: bool, now_s: float) -> bool:
        """Report a result to the circuit breaker; returns whether it opened."""
        earlier_state = self.breaker.state
        self.breaker.result(permit, ok=ok, now_s=now_s)
        if earlier_state is self.breaker.state:
            return False
        if self.breaker.state is BreakerState.CLOSED:
            self._gauge.set(0)
            logger.info("breaker-closed", **self._log_fields)
            return False
        if earlier_state is BreakerState.CLOSED:
            self._show_breaker_open("failures in a row")
        return True

    def _show_breaker_open(self, reason: str) -> None:
        self.ever_open = True
        self._gauge.set(1)
        logger.warning("breaker-opened", why=reason, **self._log_fields)

    def _apply_pause(self, answer: Answer, now_s: float) -> bool:
        """Remember the pause that an answer asks for; returns whether it is too long to wait for."""
        if answer.status not in outcome.PAUSING or not answer.retry_after_s:
            return False
        wait_s = min(answer.retry_after_s, self._policy.max_pause)
        self.paused_until_s = max(self.paused_until_s, now_s + wait_s)
        if wait_s <= self._longest_pause_s:
            return False
        self.ever_open = True
        logger.warning(
            "destination-paused",
            seconds=wait_s,
            asked_s=answer.retry_after_s,
            status=answer.status,
            **self._log_fields,
        )
        return True


def attempt_counts(delivery: Delivery, now_s: float) -> AttemptCounts:
    """The current counts of a delivery; `now_s`: monotonic, seconds."""
    age_s = (now_us() - delivery.started_us) / MICROSECONDS if delivery.started_us else 0.0
    return AttemptCounts(
        delivery.attempts, delivery.local, max(0.0, age_s), now_s - delivery.pass_started_s, delivery.passes
    )


def _events_at_fault(refusals: Iterable[tuple[OutboundRequest, Attempt]]) -> list[Conclusion]:
    return [
        Conclusion(delivery, outcome.refused(attempt.status), attempt)
        for request, attempt in refusals
        for delivery in request.deliveries
    ]
