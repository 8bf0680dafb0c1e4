"""What a lane holds: queued deliveries, and requests that are sent again."""

import asyncio
from collections import deque
from collections.abc import Sequence

from hifi.pipe.model import BatchPolicy
from hifi_egest.delivery.delivery import Delivery, DeliveryState
from hifi_egest.delivery.in_flight_budget import InFlightBudget
from hifi_egest.delivery.lease import PartitionLease
from hifi_egest.delivery.outbound_request import OutboundRequest
from hifi_egest.delivery.partition import SourcePartition
from hifi_egest.lanes.queue import DeliveryQueue


class LaneBuffer:
    """The deliveries of a lane, bounded in number and bytes, from `add` to `left`."""

    def __init__(
        self,
        max_events: int,
        max_bytes: int,
        budget: InFlightBudget,
        lease: PartitionLease,
        *,
        ordered: bool,
    ) -> None:
        """Start empty.

        Args:
            max_events: deliveries, queued or in flight.
            max_bytes: their estimated size in memory.
            budget: of all lanes together.
            lease: that requests need.
            ordered: keep the order within a key.
        """
        self.max_events = max_events
        self._max_bytes = max_bytes
        self._budget = budget
        self._lease = lease
        self._queue = DeliveryQueue(ordered=ordered)
        self._requests: deque[OutboundRequest] = deque()
        """Requests to send before anything that is queued."""
        self._room = asyncio.Event()
        self.events = 0
        """Deliveries in the lane, queued or in flight."""
        self.size_bytes = 0

    def fits(self, size_bytes: int, *, retried: bool) -> bool:
        """Whether one more delivery fits. Retried deliveries may fill half of the lane, so fresh ones find room."""
        # No lane may hold more than is free in total, so many slow ones leave room for the next (dynamic thresholds:
        # Choudhury and Hahne, 1998).
        budget = self._budget
        if self.events >= self.max_events or self.events >= budget.free_events:
            return False
        if retried and self._queue.retried * 2 >= min(self.max_events, budget.free_events):
            return False
        needed_bytes = self.size_bytes + size_bytes
        return not self.events or (needed_bytes <= self._max_bytes and needed_bytes <= budget.free_bytes)

    async def wait_for_room(self, within_s: float) -> None:
        """Wait until a delivery leaves the lane, at most `within_s` seconds."""
        self._room.clear()
        timer = asyncio.get_running_loop().call_later(within_s, self._room.set)
        await self._room.wait()
        timer.cancel()

    def add(self, delivery: Delivery, now_s: float) -> None:
        """Queue a delivery."""
        self.events += 1
        self.size_bytes += delivery.event.size_bytes
        self._queue.add(delivery, now_s)

    def left(self, deliveries: Sequence[Delivery]) -> None:
        """Count deliveries that leave the lane."""
        self.events -= len(deliveries)
        for delivery in deliveries:
            self.size_bytes -= delivery.event.size_bytes
        self._room.set()

    def reorder(self, now_s: float, *, ordered: bool) -> None:
        """Queue everything anew after the destination's declared order changed."""
        queue, self._queue = self._queue, DeliveryQueue(ordered=ordered)
        for delivery in queue.remove_all():
            delivery.state = DeliveryState.QUEUED
            self._queue.add(delivery, now_s)

    @property
    def queued(self) -> int:
        """Deliveries that are queued."""
        return len(self._queue)

    @property
    def ready(self) -> bool:
        """Whether there is anything that may be sent."""
        return bool(self._requests) or self._queue.ready

    def batch_wait_s(self, batch: BatchPolicy, now_s: float) -> float:
        """Seconds that an incomplete batch still waits for more deliveries; 0 or less: send it. Only while ready."""
        if self._requests or self._queue.ready_count >= batch.size or self._queue.ready_bytes >= batch.bytes:
            return 0.0
        return self._queue.waiting_since_s + batch.wait - now_s

    def next_request(self, batch: BatchPolicy | None) -> OutboundRequest:
        """Take the next request, or make one of queued deliveries. Only while ready."""
        if self._requests:
            return self._requests.popleft()
        if batch is None:
            first = self._queue.take()
            assert first is not None
            return OutboundRequest([first], [first.key] if first.key is not None else [], self._lease)
        deliveries, keys = self._queue.take_batch(batch.size, batch.bytes)
        return OutboundRequest(deliveries, keys, self._lease)

    def send_first(self, request: OutboundRequest) -> None:
        """Send a request before all others."""
        self._requests.appendleft(request)

    def send_next(self, request: OutboundRequest) -> None:
        """Send a request after the other requests and before queued deliveries."""
        self._requests.append(request)

    def finish(self, request: OutboundRequest) -> None:
        """Release the keys of a request whose deliveries are decided, and send the request that follows it."""
        if request.followed_by is not None:
            self._requests.appendleft(request.followed_by)
        for key in request.keys:
            self._queue.release(key)

    def remove_late(self, before_s: float) -> list[Delivery]:
        """Remove and return the deliveries queued before a time, monotonic seconds."""
        late = self._queue.remove_late(before_s)
        self.left(late)
        return late

    def remove_partition(self, partition: SourcePartition) -> list[Delivery]:
        """Remove and return the queued deliveries of a partition."""
        removed = self._queue.remove_partition(partition)
        self.left(removed)
        return removed

    def remove_revoked_requests(self) -> list[OutboundRequest]:
        """Remove and return the requests with deliveries of a revoked partition."""
        revoked = [request for request in self._requests if not request.active]
        for request in revoked:
            self._requests.remove(request)
        return revoked

    def remove_waiting(self) -> list[Delivery]:
        """Remove and return everything that waits and is not in flight.

        Queued deliveries have left the lane then; those of requests leave it when their outcome is decided.
        """
        waiting = self._queue.remove_all()
        self.left(waiting)
        requests = list(self._requests)
        self._requests.clear()
        for request in requests:
            last = request
            while last.followed_by is not None:
                waiting += last.deliveries
                last = last.followed_by
            waiting += last.deliveries
            for key in last.keys:
                self._queue.release(key)
        return waiting
