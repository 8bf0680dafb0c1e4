"""A lane: everything that egest keeps for one destination of one pipe.

Each lane has its own queue, concurrency, rate limit, time-out, circuit breaker and connections, so a slow or dead
destination affects only its own deliveries. Deliveries that cannot be sent soon go to the retrier.
"""

import asyncio
import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from hifi.delivery.sender import Sender, SentRequest, SplitBatch, Unsendable
from hifi.pipe.model import Destination
from hifi.record.identity import identity
from hifi.runtime import log, metrics
from hifi.runtime.clock import MICROSECONDS, monotonic_s
from hifi_egest.delivery.delivery import RETRY_OUT, Delivery, EventRecord, OutboundRequest, SourcePartition
from hifi_egest.delivery.memory_bounds import LaneRoom
from hifi_egest.lanes.failure_handling import FailureHandling
from hifi_egest.lanes.lane_gauges import LaneGauges
from hifi_egest.lanes.queue import RequestQueue
from hifi_egest.lanes.rate_limit import RateLimit
from hifi_egest.lanes.resources import LaneResources
from hifi_egest.lanes.wake_timer import WakeTimer
from hifi_egest.policy.admission import AdmissionControl
from hifi_egest.policy.breaker import BreakerState, Permit
from hifi_egest.policy.outcome import DELIVERED, HELD, Deferral
from hifi_egest.senders.make_sender import make_sender

_RECHECK_S: Final = 0.1
"""Time after which a lane that may not send checks again, seconds."""
_BATCHES: Final = 4
"""Batches of its destination for which a lane has room at least."""

logger = log.get(__name__)


class _RevisionSender(NamedTuple):
    """The sender of a revision that declares the destination in another way, and that declaration."""

    destination: Destination
    sender: Sender[OutboundRequest]


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
        self._recorder = resources.recorder
        self._loop = asyncio.get_running_loop()
        settings = resources.settings
        self._room = LaneRoom(settings.egest_lane_events, settings.egest_lane_bytes, resources.budget)
        self._queue = RequestQueue(resources.lease, ordered=destination.ordered == "key")
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = WakeTimer(self.dispatch)
        self._dispatch_scheduled = False
        self.offered_s = monotonic_s()
        """Time at which a delivery was last offered, monotonic seconds."""
        labels = pipe, destination.name
        self._delivery_seconds = metrics.DELIVERY_LAG_SECONDS.labels(*labels)
        self._delivered_count = metrics.OUTCOMES.labels(*labels, "delivered")
        self._gauges = LaneGauges(*labels)
        self._log_fields = {"pipe": pipe, "destination": destination.name}
        self._retired = self._pipe_held = False
        self.sender = self._make_sender(destination)
        """The sender of the declaration in force."""
        self._revision_senders: dict[int, _RevisionSender] = {}
        """Senders by revision; there are some only while a rollout is under way, or has just ended."""
        self._failures = FailureHandling(
            pipe, destination, resources, self._queue, self._hand_over_waiting, self.dispatch
        )
        self._declare(destination, rate_share)

    # Declaration

    def _declare(self, destination: Destination, rate_share: float) -> None:
        settings = self._resources.settings
        self.destination = destination
        # A lane that holds few batches would wait for each of them.
        batch_size = destination.batch.size if destination.batch else 0
        self._room.max_events = max(settings.egest_lane_events, _BATCHES * batch_size)
        max_in_flight = destination.concurrency * (destination.batch.size if destination.batch else 1)
        self._admission = AdmissionControl(monotonic_s(), max_in_flight, destination.rate or math.inf)
        self.rate_limit = RateLimit(destination.rate, rate_share)

    def _make_sender(self, destination: Destination) -> Sender[OutboundRequest]:
        return make_sender(self.pipe, destination, self._resources, missing_changed=self._missing_changed)

    async def replace(self, destination: Destination) -> None:
        """Apply a new declaration of the destination, also to queued deliveries."""
        if destination == self.destination:
            return
        await self.sender.stop()
        ordered = destination.ordered == "key"
        if ordered != (self.destination.ordered == "key"):
            self._queue.reorder(monotonic_s(), ordered=ordered)
        # No await from here on: deliveries that the old health holds must get outcomes before the new one replaces it.
        self._failures.replace_health(destination)
        self._declare(destination, self.rate_limit.share)
        self.sender = self._make_sender(destination)
        self.dispatch()

    def replace_revisions(
        self, declared_destinations: Mapping[int, Destination]
    ) -> list[Sender[OutboundRequest]]:
        """Make the senders of revisions that declare the destination otherwise; returns obsolete ones, to be stopped.

        Args:
            declared_destinations: revision to the destination as it declares it; revisions that declare the same as the
                declaration in force need no sender of their own.
        """
        different_destinations = {
            revision: destination
            for revision, destination in declared_destinations.items()
            if destination != self.destination
        }
        obsolete = [
            revision
            for revision, earlier in self._revision_senders.items()
            if different_destinations.get(revision) != earlier.destination
        ]
        stopped = [self._revision_senders.pop(revision).sender for revision in obsolete]
        for revision, destination in different_destinations.items():
            if revision not in self._revision_senders:
                sender = self._make_sender(destination)
                self._revision_senders[revision] = _RevisionSender(destination, sender)
        return stopped

    def hold(self, *, pipe_held: bool) -> None:
        """Hand over all waiting deliveries while the pipe is held; requests in flight finish."""
        self._pipe_held = pipe_held
        if pipe_held:
            self._failures.retry_refusals()
            self._hand_over_waiting(monotonic_s())

    async def retire(self) -> None:
        """Close a deleted destination's lane: waiting deliveries become dead letters, requests in flight finish."""
        self._retired = True
        self._failures.retire()
        self._gauges.show(0, 0, 0)
        for sender in self._senders():
            await sender.stop()

    def _senders(self) -> list[Sender[OutboundRequest]]:
        return [self.sender, *(sender for _, sender in self._revision_senders.values())]

    # Admission

    def may_wait(self, *, delays_others: bool, saturated: bool) -> bool:
        """Whether a delivery that does not fit waits, rather than going to the retrier; see `AdmissionControl`."""
        now_s = monotonic_s()
        if (
            self._failures.health.breaker.state is not BreakerState.CLOSED
            or self._deferral(now_s) is not None
        ):
            return False
        return self._admission.may_wait(
            self._room.events, now_s, delays_others=delays_others, saturated=saturated
        )

    async def wait_for_room(self, timeout_s: float) -> None:
        """Wait until a delivery leaves the lane, at most `timeout_s` seconds."""
        started_s = monotonic_s()
        await self._room.wait_for_release(timeout_s)
        now_s = monotonic_s()
        self._admission.waited(now_s - started_s, now_s)

    @property
    def accepts(self) -> bool:
        """Whether the destination accepted the last request, and nothing keeps deliveries from it now."""
        health, now_s = self._failures.health, monotonic_s()
        healthy = health.breaker.state is BreakerState.CLOSED and now_s >= health.paused_until_s
        return healthy and self.sender.ready and self._deferral(now_s) is None

    @property
    def has_capacity(self) -> bool:
        """Whether the lane could send more requests at once if it had more deliveries."""
        return not len(self._queue) and self._running < self.destination.concurrency

    def offer(self, event: EventRecord, name: bytes) -> bool:
        """Queue the delivery of an event, or hand it over at once if the destination accepts nothing.

        Args:
            event: to deliver.
            name: of this destination.

        Returns:
            False: the lane is full. Deliveries that the retrier brings back may fill half of it.
        """
        queued_retries = self._queue.retried if event.partition.source == RETRY_OUT else 0
        if not self._room.fits(event.size_bytes, queued_retries):
            return False
        now_s = self.offered_s = monotonic_s()
        deferral = self._deferral(now_s)
        if deferral is not None:
            self.defer(event, name, deferral)
            return True
        if not self._room.events:
            self._admission.lane_started(now_s)
        self._queue.add(Delivery(event, name, event.earlier, self._room), now_s)
        self._room.add(event.size_bytes)
        if not self._dispatch_scheduled:
            self._dispatch_scheduled = True
            self._loop.call_soon(self.dispatch)
        return True

    def defer(self, event: EventRecord, name: bytes, deferral: Deferral) -> None:
        """Hand over the delivery of an event that was not admitted; `name`: of this destination."""
        now_s = self.offered_s = monotonic_s()
        delivery = Delivery(event, name, event.earlier, self._room)
        try:
            self._failures.defer([delivery], deferral, now_s)
        except BaseException:
            delivery.leave()  # nothing is written: the repetition of the batch makes a new one
            raise

    def _deferral(self, now_s: float) -> Deferral | None:
        """The reason why no delivery is queued or sent now; None: there is none."""
        if self._retired:
            return Deferral("pipe-deleted", "the destination was deleted")
        if self._pipe_held:
            return HELD
        if self.sender.missing:
            return Deferral("unusable", self.sender.missing)
        return self._failures.deferral(now_s)

    def _hand_over_waiting(self, now_s: float) -> None:
        """Hand over all waiting deliveries, if there is a reason not to send them."""
        deferral = self._deferral(now_s)
        if deferral is not None:
            self._failures.defer(self._queue.remove_waiting(), deferral, now_s)

    def revoke(self, partition: SourcePartition) -> None:
        """Drop the queued deliveries of a revoked partition, and hand over those that wait for a local retry."""
        for delivery in self._queue.remove_partition(partition):
            delivery.leave()
        self._failures.revoke()

    def sweep(self) -> None:
        """Run periodically: hand over late deliveries, close idle connections, update the metric."""
        now_s = monotonic_s()
        max_wait_s = self._resources.settings.egest_send_within_s
        deferral = Deferral("not-in-time", f"the lane did not start to send it within {max_wait_s:g} s")
        self._failures.defer(self._queue.remove_late(now_s - max_wait_s), deferral, now_s)
        self._failures.refresh_parking(now_s)
        for sender in self._senders():
            sender.sweep()
        self._gauges.show(self._room.events, self._running, self.destination.concurrency)
        self.dispatch()

    # Sending

    def dispatch(self) -> None:
        """Start as many requests as may be sent now."""
        self._dispatch_scheduled = False
        try:
            while self._running < self.destination.concurrency:
                request = self._next_request()
                if request is None:
                    return
                self._running += 1
                task = self._loop.create_task(self._send_requests(request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except Exception:  # queued deliveries stay queued: the next sweep sends them
            logger.exception("dispatch-failed", **self._log_fields)

    async def _send_requests(self, request: OutboundRequest | None) -> None:
        """Send one request after the other while there are any."""
        while request is not None:
            try:
                await self._send(request)
            except Exception:
                logger.exception("attempt-failed", **self._log_fields)
                self._failures.dead_letter_undecided(request)
            if request.permit is Permit.PROBE:
                self.dispatch()  # what has waited for its result
            try:
                request = self._next_request()
            except Exception:  # queued deliveries stay queued: the next sweep sends them
                logger.exception("dispatch-failed", **self._log_fields)
                request = None
        # Here rather than when the task is done: an offer in between would find no free slot and start no request.
        self._running -= 1

    def _next_request(self) -> OutboundRequest | None:
        if not self._queue.has_request:
            return None
        now_s = monotonic_s()
        wait_s = self._wait_before_sending_s(now_s)
        if wait_s > 0:
            self._wake.wake_in(wait_s)
            return None
        permit = self._failures.health.breaker.permit(now_s)
        if permit is Permit.NO:
            self._hand_over_waiting(now_s)
            return None
        request = self._queue.next_request(self.destination.batch)
        request.permit = permit
        if self.rate_limit.limited:
            self.rate_limit.take(now_s)
        return request

    def _wait_before_sending_s(self, now_s: float) -> float:
        """Seconds until the next request may be sent, as far as is known; 0: now."""
        if not self.sender.ready or not self._resources.lease.held():
            return _RECHECK_S
        if self._room.unrecorded >= self._resources.settings.egest_unacknowledged_receipts:
            return _RECHECK_S
        if now_s < self._failures.health.paused_until_s:
            return self._failures.health.paused_until_s - now_s
        if self.destination.batch is not None:
            wait_s = self._queue.batch_wait_s(self.destination.batch, now_s)
            if wait_s > 0:
                return wait_s
        return self.rate_limit.wait_s(now_s) if self.rate_limit.limited else 0.0

    async def _send(self, request: OutboundRequest) -> None:
        """Send one request and apply its result."""
        while True:
            sender = self.sender  # the destination may have been declared anew during the last turn
            if self._revision_senders:
                sender, same_count = self._choose_sender(request)
                if same_count < len(request.deliveries):
                    self._failures.split(request, same_count)
                    return
            if not sender.ready:
                self._failures.hand_over_unusable(request, sender.missing)
                return
            sent_request = await sender.send(request)
            if not isinstance(sent_request, Unsendable) or not self._failures.dead_letter_unsendable(
                request, sent_request
            ):
                break
        if isinstance(sent_request, SplitBatch):
            self._failures.split(request)
        elif not isinstance(sent_request, SentRequest):
            self._failures.postpone(request)
        elif 200 <= sent_request.attempt.status < 300:
            self._succeeded(request, sent_request)
        else:
            self._failures.failed(request, sent_request)

    def _choose_sender(self, request: OutboundRequest) -> tuple[Sender[OutboundRequest], int]:
        """The sender of a request's first delivery, and how many deliveries from the first on have the same one."""
        senders: list[Sender[OutboundRequest]] = []
        for record in request.records():
            revision_sender = self._revision_senders.get(identity(record.headers).revision)
            senders.append(revision_sender.sender if revision_sender is not None else self.sender)
        same_count = next(
            (index for index, sender in enumerate(senders) if sender is not senders[0]), len(senders)
        )
        return (senders[0] if senders else self.sender), same_count

    def _succeeded(self, request: OutboundRequest, sent_request: SentRequest) -> None:
        """Record the deliveries of a request that the destination accepted, and measure it."""
        deliveries, attempt = request.deliveries, sent_request.attempt
        self._failures.succeeded(request.permit, sent_request.ended_s)
        self._admission.delivered(len(deliveries), sent_request.took_s, sent_request.ended_s)
        self._delivered_count.inc(len(deliveries))
        self._delivery_seconds.observe_all(
            [
                max(0, attempt.answered_us - delivery.event.accepted_us) / MICROSECONDS
                for delivery in deliveries
            ]
        )
        self._recorder.record(deliveries, DELIVERED, attempt, self._failures.breaker_text())
        self._queue.finish(request)

    def _missing_changed(self) -> None:
        if self.sender.missing:
            self._hand_over_waiting(monotonic_s())
        self.dispatch()
