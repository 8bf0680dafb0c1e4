"""A lane: everything that egest keeps for one destination of one pipe.

Each lane has its own buffer, concurrency, rate limit, time-out, circuit breaker and connections, so a slow or dead
destination affects only its own deliveries. Deliveries that cannot be sent soon go to the retrier.
"""

import asyncio
import math
from typing import Final

from hifi.pipe.model import Destination
from hifi.runtime import log, metrics
from hifi.runtime.clock import MICROSECONDS, monotonic_s
from hifi.runtime.token_bucket import TokenBucket
from hifi_egest.delivery.delivery import NO_ATTEMPT, Delivery, DeliveryState
from hifi_egest.delivery.event_record import EventRecord
from hifi_egest.delivery.outbound_request import OutboundRequest
from hifi_egest.delivery.partition import RETRY_OUT, SourcePartition
from hifi_egest.lanes.buffer import LaneBuffer
from hifi_egest.lanes.destination_health import DestinationHealth, FailureDecision
from hifi_egest.lanes.fixed_outcomes import FAILED, REVOKED, deleted
from hifi_egest.lanes.lane_gauges import LaneGauges
from hifi_egest.lanes.lane_outcomes import LaneOutcomes
from hifi_egest.lanes.parking import LaneParking
from hifi_egest.lanes.resources import LaneResources
from hifi_egest.lanes.revision_senders import RevisionSenders, stop_senders
from hifi_egest.lanes.wake_timer import WakeTimer
from hifi_egest.policy.admission import AdmissionControl
from hifi_egest.policy.answer import NoResponse
from hifi_egest.policy.breaker import Permit
from hifi_egest.policy.outcome import Refusal, SplitBatch
from hifi_egest.policy.streak import HOLD_S
from hifi_egest.senders.make_sender import make_sender
from hifi_egest.senders.sender import Sender, SentRequest, Unsendable

_RECHECK_S: Final = 0.1
"""Time after which a lane that may not send checks again, seconds."""
_LEAST_RATE: Final = 0.01
_BATCHES: Final = 4
"""A lane has room for so many batches of its destination."""

logger = log.get(__name__)


class Lane:
    """Sends the deliveries of one destination and decides their outcomes."""

    def __init__(
        self, pipe: str, destination: Destination, resources: LaneResources, rate_share: float
    ) -> None:
        """Open the lane. It sends nothing before the first `offer`.

        Args:
            pipe: name.
            destination: as declared.
            resources: shared by all lanes.
            rate_share: share of the destination's rate that this instance may use, from 0 to 1.
        """
        self.pipe = pipe
        self._resources = resources
        self._loop = asyncio.get_running_loop()
        settings = resources.settings
        self._buffer = LaneBuffer(
            settings.egest_lane_events,
            settings.egest_lane_bytes,
            resources.budget,
            resources.lease,
            ordered=destination.ordered == "key",
        )
        self._sleeping: dict[OutboundRequest, asyncio.TimerHandle] = {}
        """Requests that wait for a local retry."""
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = WakeTimer(self.dispatch)
        self._held_check: asyncio.TimerHandle | None = None
        self._rate_share = rate_share
        self._retired = False
        self.offered_s = monotonic_s()
        """When a delivery was last offered, monotonic seconds."""
        labels = pipe, destination.name
        self._delivery_seconds = metrics.DELIVERY_LAG_SECONDS.labels(*labels)
        self._delivered_count = metrics.OUTCOMES.labels(*labels, "delivered")
        self._gauges = LaneGauges(*labels)
        self._log_fields = {"pipe": pipe, "destination": destination.name}
        self.revisions = RevisionSenders(self._make_sender)
        """Of revisions that declare the destination in another way."""
        self._configure(destination, ever_open=False)
        self._parking = LaneParking(pipe, destination.name, resources)
        self._outcomes = LaneOutcomes(resources, self._buffer, self._health, self._parking)

    def _configure(self, destination: Destination, *, ever_open: bool) -> None:
        settings = self._resources.settings
        self.destination = destination
        self._health = DestinationHealth(
            self.pipe, destination, self._resources.tiers, settings.egest_send_within_s, ever_open=ever_open
        )
        # A lane that holds few batches would wait for each of them.
        size = destination.batch.size if destination.batch else 0
        self._buffer.max_events = max(settings.egest_lane_events, _BATCHES * size)
        max_in_flight = destination.concurrency * (destination.batch.size if destination.batch else 1)
        self._admission = AdmissionControl(monotonic_s(), max_in_flight, destination.rate or math.inf)
        self._rate_limit = TokenBucket(1.0) if destination.rate is not None else None
        self.set_rate_share(self._rate_share)
        self._sender = self._make_sender(destination)

    def _make_sender(self, destination: Destination) -> Sender:
        return make_sender(self.pipe, destination, self._resources, missing_changed=self._missing_changed)

    def set_rate_share(self, rate_share: float) -> None:
        """Change the share of the destination's rate that this instance may use, from 0 to 1."""
        self._rate_share = rate_share
        if self._rate_limit is not None and self.destination.rate is not None:
            self._rate_limit.set_rate(max(self.destination.rate * rate_share, _LEAST_RATE))

    async def replace(self, destination: Destination) -> None:
        """Apply a new declaration of the destination, also to what is queued."""
        if destination == self.destination:
            return
        await stop_senders([self._sender])
        ordered = destination.ordered == "key"
        if ordered != (self.destination.ordered == "key"):
            self._buffer.reorder(monotonic_s(), ordered=ordered)
        # No await from here on: what the old health holds must have its outcome before the new one takes its place.
        self._outcomes.conclude_all(self._health.release_held())
        self._configure(destination, ever_open=self._health.ever_open)
        self._outcomes.health = self._health
        self.dispatch()

    async def retire(self) -> None:
        """Close the lane of a deleted destination: what waits becomes dead letters, requests in flight finish."""
        self._retired = True
        self._outcomes.conclude_all(self._health.retire())
        for delivery in self._buffer.remove_waiting():
            self._outcomes.conclude(delivery, deleted(self.pipe, self.destination.name), NO_ATTEMPT)
        self._gauges.show(0, 0, 0)
        await stop_senders([self._sender])
        await self.revisions.stop()

    # Admission

    def fits(self, event: EventRecord) -> bool:
        """Whether one more delivery fits. Deliveries that the retrier brings back may fill half of the lane."""
        return self._buffer.fits(event.size_bytes, retried=event.partition.source == RETRY_OUT)

    def may_wait(self, *, alone: bool, saturated: bool) -> bool:
        """Whether a delivery that does not fit waits, rather than going to the retrier; see `AdmissionControl`."""
        now_s = monotonic_s()
        if self._refusal(now_s) is not None:
            return False
        return self._admission.may_wait(self._buffer.events, now_s, alone=alone, saturated=saturated)

    async def wait_for_room(self, within_s: float) -> None:
        """Wait until a delivery leaves the lane, at most `within_s` seconds."""
        started_s = monotonic_s()
        await self._buffer.wait_for_room(within_s)
        now_s = monotonic_s()
        self._admission.waited(now_s - started_s, now_s)

    @property
    def has_capacity(self) -> bool:
        """Whether the lane could send more requests at once if it had more deliveries."""
        return not self._buffer.queued and self._running < self.destination.concurrency

    def offer(self, delivery: Delivery) -> None:
        """Queue a delivery, or hand it over at once if the destination accepts nothing. Call `dispatch` afterwards."""
        now_s = self.offered_s = monotonic_s()
        refusal = self._refusal(now_s)
        if refusal is not None:
            self._outcomes.refuse(delivery, refusal, now_s)
            return
        if not self._buffer.events:
            self._admission.lane_started(now_s)
        self._buffer.add(delivery, now_s)

    def refuse(self, delivery: Delivery, refusal: Refusal) -> None:
        """Hand over a delivery that was not admitted."""
        now_s = self.offered_s = monotonic_s()
        self._outcomes.refuse(delivery, refusal, now_s)

    def revoke(self, partition: SourcePartition) -> None:
        """Drop the queued deliveries of a revoked partition, and hand over those that wait for a local retry."""
        for delivery in self._buffer.remove_partition(partition):
            delivery.leave()
        for request in [request for request in self._sleeping if not request.active]:
            self._sleeping.pop(request).cancel()
            self._drop_revoked(request)
        for request in self._buffer.remove_revoked_requests():
            self._drop_revoked(request)
        self._outcomes.conclude_all(self._health.release_held())

    def sweep(self) -> None:
        """Run periodically: hand over late deliveries, close idle connections, update the metric."""
        now_s = monotonic_s()
        within_s = self._resources.settings.egest_send_within_s
        late = Refusal("not-in-time", f"the lane did not start to send it within {within_s:g} s")
        for delivery in self._buffer.remove_late(now_s - within_s):
            self._outcomes.refuse(delivery, late, now_s)
        self._parking.refresh()
        if self._parking.refusal is not None:
            self._hand_over_waiting(now_s)
        self._sender.sweep()
        self.revisions.sweep()
        self._gauges.show(self._buffer.events, self._running, self.destination.concurrency)
        self.dispatch()

    # Sending

    def dispatch(self) -> None:
        """Start as many requests as may be sent now."""
        try:
            while self._running < self.destination.concurrency:
                request = self._next_request()
                if request is None:
                    return
                self._running += 1
                task = self._loop.create_task(self._send_requests(request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except Exception:  # what is queued stays there: an error here would make the intake offer it again
            logger.exception("dispatch-failed", **self._log_fields)

    async def _send_requests(self, request: OutboundRequest | None) -> None:
        """Send one request after the other while there are any."""
        while request is not None:
            try:
                await self._send(request)
            except Exception:
                logger.exception("attempt-failed", **self._log_fields)
                self._health.forgo(request.permit)
                for delivery in request.deliveries:
                    if delivery.state is DeliveryState.TAKEN:
                        self._outcomes.conclude(delivery, FAILED, NO_ATTEMPT)
                self._buffer.finish(request)
            request = self._next_request()
        # Here rather than when the task is done: an offer in between would find no free slot and start no request.
        self._running -= 1

    def _next_request(self) -> OutboundRequest | None:
        if not self._buffer.ready:
            return None
        now_s = monotonic_s()
        wait_s = self._wait_before_sending_s(now_s)
        if wait_s > 0:
            self._wake.wake_in(wait_s)
            return None
        permit = self._health.permit(now_s)
        if permit is Permit.NO:
            self._hand_over_waiting(now_s)
            return None
        request = self._buffer.next_request(self.destination.batch)
        request.permit = permit
        if self._rate_limit is not None:
            self._rate_limit.take(now_s)
        return request

    def _wait_before_sending_s(self, now_s: float) -> float:
        """Seconds until the next request may be sent, as far as is known; 0: now."""
        if not self._sender.ready or not self._resources.lease.held():
            return _RECHECK_S
        if self._outcomes.unrecorded.count >= self._resources.settings.egest_unacknowledged_receipts:
            return _RECHECK_S
        if now_s < self._health.paused_until_s:
            return self._health.paused_until_s - now_s
        if self.destination.batch is not None:
            wait_s = self._buffer.batch_wait_s(self.destination.batch, now_s)
            if wait_s > 0:
                return wait_s
        return self._rate_limit.wait_s(now_s) if self._rate_limit is not None else 0.0

    async def _send(self, request: OutboundRequest) -> None:
        """Send one request and apply its result."""
        sender = self._sender
        if self.revisions:
            sender, same = self.revisions.choose(request, sender)
            if same < len(request.deliveries) or not sender.ready:
                self._health.forgo(request.permit)
                self._take_apart(request, same, sender.missing)
                return
        sent = await sender.send(request)
        while isinstance(sent, Unsendable) and self._outcomes.dead_letter_unsendable(request, sent):
            sent = await sender.send(request)
        if isinstance(sent, SentRequest):
            if 200 <= sent.attempt.status < 300:
                self._delivered(request, sent)
            else:
                self._failed(request, sent)
            return
        self._health.forgo(request.permit)
        if isinstance(sent, SplitBatch):
            self._buffer.send_first(request.split())
        elif not request.deliveries:
            self._buffer.finish(request)
        elif request.active:
            self._buffer.send_first(request)  # once the lease is held again
        else:
            self._drop_revoked(request)

    def _take_apart(self, request: OutboundRequest, same: int, missing: str) -> None:
        """Send deliveries of several revisions as several requests; hand over those whose secret is missing."""
        if same < len(request.deliveries):
            self._buffer.send_first(request.split(same))
            return
        self._outcomes.refuse_request(request, Refusal("unusable", missing), monotonic_s())
        self._buffer.finish(request)

    def _count_ambiguous(self, request: OutboundRequest, result: NoResponse) -> None:
        request.count_ambiguous()
        # Explains an event that arrived twice at the destination.
        seqs = [delivery.event.seq for delivery in request.deliveries]
        logger.info("attempt-ambiguous", reason=result.reason, seqs=seqs, **self._log_fields)

    # Results

    def _delivered(self, request: OutboundRequest, sent: SentRequest) -> None:
        clarified = self._health.delivered(request, sent.ended_s)
        if clarified:
            self._outcomes.conclude_all(clarified)
        deliveries, attempt = request.deliveries, sent.attempt
        self._admission.delivered(len(deliveries), sent.took_s, sent.ended_s)
        self._delivered_count.inc(len(deliveries))
        answered_us = attempt.answered_us
        self._delivery_seconds.observe_all(
            [max(0, answered_us - each.event.accepted_us) / MICROSECONDS for each in deliveries]
        )
        self._outcomes.delivered(deliveries, attempt)
        self._buffer.finish(request)

    def _failed(self, request: OutboundRequest, sent: SentRequest) -> None:
        if isinstance(sent.result, NoResponse) and sent.result.ambiguous:
            self._count_ambiguous(request, sent.result)
        decision = self._health.failed(request, sent.result, sent.attempt, sent.ended_s)
        self._apply(request, decision, sent.ended_s)

    def _apply(self, request: OutboundRequest, decision: FailureDecision, now_s: float) -> None:
        self._outcomes.conclude_all(decision.conclusions)
        if decision.hand_over_waiting:
            self._hand_over_waiting(now_s)
        if decision.resend is None:
            self._buffer.finish(request)
        elif decision.after_s > 0:
            handle = self._loop.call_later(decision.after_s, self._retry, decision.resend)
            self._sleeping[decision.resend] = handle
        else:
            self._buffer.send_first(decision.resend)
        self._check_held_soon()

    def _retry(self, request: OutboundRequest) -> None:
        """A request's wait for its local retry is over."""
        del self._sleeping[request]
        self._buffer.send_next(request)
        self._hand_over_waiting(monotonic_s())
        self.dispatch()

    def _check_held_soon(self) -> None:
        if self._health.holding and self._held_check is None:
            self._held_check = self._loop.call_later(HOLD_S / 4, self._check_held)

    def _check_held(self) -> None:
        self._held_check = None
        self._outcomes.conclude_all(self._health.overdue(monotonic_s()))
        self._check_held_soon()

    def _drop_revoked(self, request: OutboundRequest) -> None:
        """Take the deliveries of revoked partitions out of a request; the others are sent."""
        kept: list[Delivery] = []
        for delivery in request.deliveries:
            if delivery.event.partition.assigned.active:
                kept.append(delivery)
            elif delivery.local:  # hand over, so that its attempts are not forgotten
                self._outcomes.refuse(delivery, REVOKED, monotonic_s())
            else:
                self._buffer.left([delivery])
                delivery.leave()
        request.deliveries = kept
        if kept:
            self._buffer.send_first(request)
        else:
            self._buffer.finish(request)

    # Outcomes

    def _refusal(self, now_s: float) -> Refusal | None:
        if self._retired:
            return Refusal("pipe-deleted", "the destination was deleted")
        if self._sender.missing:
            return Refusal("unusable", self._sender.missing)
        return self._parking.refusal or self._health.refusal(now_s)

    def _hand_over_waiting(self, now_s: float) -> None:
        """Hand over everything that waits, if the destination accepts nothing."""
        refusal = self._refusal(now_s)
        if refusal is not None:
            for delivery in self._buffer.remove_waiting():
                self._outcomes.refuse(delivery, refusal, now_s)

    def _missing_changed(self) -> None:
        if self._sender.missing:
            self._hand_over_waiting(monotonic_s())
        self.dispatch()
