"""Failure handling of a lane: retries, parking and dead letters of deliveries that its destination does not accept."""

import asyncio
from collections.abc import Callable, Iterable

from hifi.delivery.answer import NoResponse
from hifi.delivery.sender import SentRequest, Unsendable
from hifi.pipe.model import Destination
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s
from hifi_egest.delivery.delivery import NO_ATTEMPT, Delivery, DeliveryState, OutboundRequest
from hifi_egest.lanes.destination_health import Conclusion, DestinationHealth, FailureDecision
from hifi_egest.lanes.local_retries import LocalRetries
from hifi_egest.lanes.parking import LaneParking
from hifi_egest.lanes.queue import RequestQueue
from hifi_egest.lanes.resources import LaneResources
from hifi_egest.policy.breaker import BreakerState, Permit
from hifi_egest.policy.outcome import FAILED, REVOKED, DeadLettered, Deferral, RetryLater, deleted
from hifi_egest.policy.refusal_streak import HOLD_S

logger = log.get(__name__)


class FailureHandling:
    """Applies the health and the parking of a destination: sends again, hands over, and records outcomes."""

    def __init__(
        self,
        pipe: str,
        destination: Destination,
        resources: LaneResources,
        queue: RequestQueue,
        hand_over_waiting: Callable[[float], None],
        dispatch: Callable[[], None],
    ) -> None:
        """Start with a healthy destination.

        Args:
            pipe: name.
            destination: as declared.
            resources: shared by all lanes.
            queue: of the lane.
            hand_over_waiting: hands over all waiting deliveries, if there is a reason not to send them; its argument is
                the current time, monotonic seconds.
            dispatch: starts the requests that may be sent.
        """
        self._resources = resources
        self._recorder = resources.recorder
        self._queue = queue
        self._hand_over_waiting = hand_over_waiting
        self._dispatch = dispatch
        self._loop = asyncio.get_running_loop()
        self._pipe, self._destination_name = pipe, destination.name
        self._log_fields = {"pipe": pipe, "destination": destination.name}
        self._local_retries = LocalRetries(self._resend)
        self._refusals_check: asyncio.TimerHandle | None = None
        instance = resources.settings.instance.replace(";", "_")  # the separator of a receipt's fields
        self._breaker_texts = {state: f"{state.value}:{instance}".encode() for state in BreakerState}
        self._paused_text = f"paused:{instance}".encode()
        self._parking = LaneParking(pipe, destination.name, resources)
        self.health = self._make_health(destination, ever_open=False)
        """The health of the destination as it is declared."""

    def _make_health(self, destination: Destination, *, ever_open: bool) -> DestinationHealth:
        longest_pause_s = self._resources.settings.egest_send_within_s
        return DestinationHealth(
            self._pipe, destination, self._resources.tiers, longest_pause_s, ever_open=ever_open
        )

    def replace_health(self, destination: Destination) -> None:
        """Begin anew with a new declaration; refused deliveries without an outcome get theirs first."""
        self.retry_refusals()
        self.health = self._make_health(destination, ever_open=self.health.ever_open)

    def retire(self) -> None:
        """Make dead letters of all deliveries that wait for a deleted destination."""
        self.record(self.health.retire())
        outcome = deleted(self._pipe, self._destination_name)
        self.record(Conclusion(delivery, outcome, NO_ATTEMPT) for delivery in self._queue.remove_waiting())

    def refresh_parking(self, now_s: float) -> None:
        """Apply the state of the destination. Called periodically; `now_s`: monotonic, seconds."""
        self._parking.refresh()
        if self._parking.deferral is not None:
            self._hand_over_waiting(now_s)

    def deferral(self, now_s: float) -> Deferral | None:
        """The reason why the destination accepts no delivery now; None: it may accept them."""
        return self._parking.deferral or self.health.deferral(now_s)

    def breaker_text(self) -> bytes:
        """The state of the circuit breaker or a pause, for receipts; empty: there has been neither."""
        if not self.health.ever_open:
            return b""
        if self.health.is_paused(monotonic_s()):
            return self._paused_text
        return self._breaker_texts[self.health.breaker.state]

    # Results of requests

    def succeeded(self, permit: Permit, now_s: float) -> None:
        """Learn from a request that the destination accepted; `now_s`: monotonic, seconds."""
        clarified_conclusions = self.health.succeeded(permit, now_s)
        if clarified_conclusions:
            self.record(clarified_conclusions)
        if self._parking.failing:
            self._parking.succeeded()

    def failed(self, request: OutboundRequest, sent_request: SentRequest) -> None:
        """Take the steps that follow a failed request."""
        if isinstance(sent_request.result, NoResponse) and sent_request.result.ambiguous:
            self._count_ambiguous(request, sent_request.result)
        decision = self.health.failed(
            request, sent_request.result, sent_request.attempt, sent_request.ended_s
        )
        self._apply_decision(request, decision, sent_request.ended_s)

    def _count_ambiguous(self, request: OutboundRequest, response: NoResponse) -> None:
        request.count_ambiguous()
        # Explains an event that arrived twice at the destination.
        seqs = [delivery.event.seq for delivery in request.deliveries]
        logger.info("attempt-ambiguous", reason=response.reason, seqs=seqs, **self._log_fields)

    def _apply_decision(self, request: OutboundRequest, decision: FailureDecision, now_s: float) -> None:
        self.record(decision.conclusions)
        if decision.hand_over_waiting:
            self._hand_over_waiting(now_s)
        if decision.resend is None:
            self._queue.finish(request)
        elif decision.after_s > 0:
            self._local_retries.add(decision.resend, decision.after_s)
        else:
            self._queue.send_first(decision.resend)
        self._check_refusals_soon()

    def _resend(self, request: OutboundRequest) -> None:
        """Queue a request whose wait for its local retry is over."""
        self._queue.send_next(request)
        self._hand_over_waiting(monotonic_s())
        self._dispatch()

    # Refused deliveries that are held until it is clear whether event or destination is at fault

    def retry_refusals(self) -> None:
        """Record outcomes of refused deliveries that are still unclear: they are retried later."""
        self.record(self.health.release_held())

    def _check_refusals_soon(self) -> None:
        if self.health.holding and self._refusals_check is None:
            self._refusals_check = self._loop.call_later(HOLD_S / 4, self._check_refusals)

    def _check_refusals(self) -> None:
        self._refusals_check = None
        self.record(self.health.overdue(monotonic_s()))
        self._check_refusals_soon()

    # Requests that were not sent

    def split(self, request: OutboundRequest, first_count: int | None = None) -> None:
        """Send the deliveries of a request as two requests; `first_count`: of the first one; None: half of them."""
        self.health.breaker.forgo(request.permit)
        self._queue.send_first(request.split(first_count))

    def postpone(self, request: OutboundRequest) -> None:
        """Send a request without a lease once that is held again, except deliveries of revoked partitions."""
        self.health.breaker.forgo(request.permit)
        if not request.deliveries:
            self._queue.finish(request)
        elif request.active:
            self._queue.send_first(request)
        else:
            self._drop_revoked(request)

    def hand_over_unusable(self, request: OutboundRequest, missing: str) -> None:
        """Hand over the deliveries of a request whose sender cannot be used; `missing`: see `Sender`."""
        self.health.breaker.forgo(request.permit)
        self.defer(request.deliveries, Deferral("unusable", missing), monotonic_s())
        request.deliveries = []
        self._queue.finish(request)

    def dead_letter_unsendable(self, request: OutboundRequest, unsendable: Unsendable) -> bool:
        """Take deliveries that cannot be sent out of a request; returns whether any remain."""
        rejected = [(request.deliveries[index], error) for index, error in unsendable.rejected]
        for delivery, error in rejected:
            request.deliveries.remove(delivery)
            self.record([Conclusion(delivery, DeadLettered(error.reason, error.detail), NO_ATTEMPT)])
        return bool(request.deliveries)

    def dead_letter_undecided(self, request: OutboundRequest) -> None:
        """End a request on which egest itself failed: deliveries without an outcome become dead letters."""
        self.health.breaker.forgo(request.permit)
        self.record(
            Conclusion(delivery, FAILED, NO_ATTEMPT)
            for delivery in request.deliveries
            if delivery.state is DeliveryState.TAKEN
        )
        self._queue.finish(request)

    def revoke(self) -> None:
        """Drop or hand over the requests with deliveries of revoked partitions that wait to be sent again."""
        for request in self._local_retries.remove_revoked():
            self._drop_revoked(request)
        for request in self._queue.remove_revoked_requests():
            self._drop_revoked(request)
        self.retry_refusals()

    def _drop_revoked(self, request: OutboundRequest) -> None:
        """Take the deliveries of revoked partitions out of a request; the others are sent."""
        still_assigned: list[Delivery] = []
        for delivery in request.deliveries:
            if delivery.event.partition.assigned.active:
                still_assigned.append(delivery)
            elif delivery.local:  # hand over, so that its attempts are not forgotten
                self.defer([delivery], REVOKED, monotonic_s())
            else:
                delivery.leave()
        request.deliveries = still_assigned
        if still_assigned:
            self._queue.send_first(request)
        else:
            self._queue.finish(request)

    # Outcomes

    def defer(self, deliveries: Iterable[Delivery], deferral: Deferral, now_s: float) -> None:
        """Record the outcomes of deliveries for which no request is sent; `now_s`: monotonic, seconds."""
        self.record(
            Conclusion(delivery, self._without_request(delivery, deferral, now_s), NO_ATTEMPT)
            for delivery in deliveries
        )

    def _without_request(
        self, delivery: Delivery, deferral: Deferral, now_s: float
    ) -> RetryLater | DeadLettered:
        try:
            return self.health.without_request(delivery, deferral, now_s)
        except Exception:  # of this delivery alone
            logger.exception("outcome-failed", offset=delivery.event.record.offset, **self._log_fields)
            return FAILED

    def record(self, conclusions: Iterable[Conclusion]) -> None:
        """Record retries, which become parked deliveries if the destination is parked, and dead letters.

        Raises:
            Exception: the first one, after the conclusions behind it are recorded.
        """
        first_error: Exception | None = None
        for delivery, decision, attempt in conclusions:
            try:
                outcome = self._parking.outcome(decision, delivery.event.size_bytes)
                self._recorder.record([delivery], outcome, attempt, self.breaker_text())
            except Exception as error:
                logger.exception("outcome-failed", offset=delivery.event.record.offset, **self._log_fields)
                first_error = first_error or error
        if first_error is not None:
            raise first_error
