"""The queue of a lane: the order in which deliveries are sent, one of each key at a time, and their requests. Pure."""

from collections import deque
from typing import Final

from hifi.kafka.partition_lease import PartitionLease
from hifi.pipe.model import BatchPolicy
from hifi_egest.delivery.delivery import Delivery, DeliveryState, OutboundRequest, SourcePartition

RETRIED_EVERY: Final = 4
"""While both kinds wait, one of this many deliveries is a retried one, so that neither kind starves."""


class _Followers:
    """Deliveries that wait for another one of their key.

    Attributes:
        deliveries: in their order; those that were removed stay until they are next.
        count: number of those that are still queued.
        size_bytes: their estimated size in a batch.
    """

    __slots__ = ("count", "deliveries", "size_bytes")

    def __init__(self) -> None:
        self.deliveries: deque[Delivery] = deque()
        self.count = 0
        self.size_bytes = 0

    def add(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self.count += 1
        self.size_bytes += delivery.event.batch_bytes

    def subtract(self, delivery: Delivery) -> None:
        """Count a delivery that is not queued here any more."""
        self.count -= 1
        self.size_bytes -= delivery.event.batch_bytes

    def next_queued(self) -> Delivery | None:
        while self.deliveries:
            delivery = self.deliveries.popleft()
            if delivery.state is DeliveryState.QUEUED:
                self.subtract(delivery)
                return delivery
        return None


class DeliveryQueue:
    """Deliveries that wait. One of each key is ready; the next one becomes ready when `release` is called."""

    def __init__(self, *, ordered: bool) -> None:
        """Start empty.

        Args:
            ordered: keep the order within a key; otherwise every delivery is ready at once.
        """
        self._ordered = ordered
        self._fresh_deliveries: deque[Delivery] = deque()
        self._retried_deliveries: deque[Delivery] = deque()
        self._keys: dict[bytes, _Followers | None] = {}
        """Keys of which a delivery is ready or in flight, with the deliveries that wait for it."""
        self._in_flight: set[bytes] = set()
        """Keys of which a delivery is in flight. Its followers cannot be sent before `release`."""
        self._blocked_count = 0
        self._blocked_bytes = 0
        self._size_bytes = 0
        self._arrivals: deque[Delivery] = deque()
        self._taken_count = 0
        self._length = 0
        self.retried = 0
        """Queued deliveries that have been through the retrier."""
        self.generation = 0
        """Of the order: what was taken in an earlier one blocks no key of this one."""

    def __len__(self) -> int:
        return self._length

    def add(self, delivery: Delivery, now_s: float) -> None:
        """Queue a delivery."""
        delivery.queued_s = now_s
        delivery.first_of_key = False
        self._length += 1
        self._size_bytes += delivery.event.batch_bytes
        self.retried += delivery.passes > 0
        self._arrivals.append(delivery)
        key = delivery.key
        if key is not None and self._ordered:
            if key in self._keys:
                self._follow(key, delivery)
                return
            self._keys[key] = None
        delivery.first_of_key = True
        (self._retried_deliveries if delivery.passes else self._fresh_deliveries).append(delivery)

    @property
    def ready(self) -> bool:
        """Whether a delivery may be sent."""
        return self._ready_deliveries() is not None

    @property
    def waiting_since_s(self) -> float:
        """Time at which the next delivery was queued, monotonic seconds; only while one is ready."""
        ready_deliveries = self._ready_deliveries()
        assert ready_deliveries is not None
        return ready_deliveries[0].queued_s

    @property
    def ready_count(self) -> int:
        """Number of deliveries that batches could take now: all but those that follow one in flight."""
        return self._length - self._blocked_count

    @property
    def ready_bytes(self) -> int:
        """Their estimated size in a batch."""
        return self._size_bytes - self._blocked_bytes

    def take(self, followers: _Followers | None = None) -> Delivery | None:
        """Take the next delivery; no other one of its key is ready until `release`.

        Args:
            followers: of the last one that was taken: they are next if the same request takes them.
        """
        delivery = followers.next_queued() if followers is not None else None
        if delivery is not None:
            self._blocked_count -= 1
            self._blocked_bytes -= delivery.event.batch_bytes
        else:
            ready_deliveries = self._ready_deliveries()
            if ready_deliveries is None:
                return None
            self._taken_count += 1
            delivery = ready_deliveries.popleft()
            if delivery.key is not None and self._ordered:
                self._block_followers(delivery.key)
        delivery.state = DeliveryState.TAKEN
        self._length -= 1
        self._size_bytes -= delivery.event.batch_bytes
        self.retried -= delivery.passes > 0
        arrivals = self._arrivals
        while arrivals and arrivals[0].state is not DeliveryState.QUEUED:
            arrivals.popleft()
        return delivery

    def take_batch(self, max_deliveries: int, max_bytes: int) -> tuple[list[Delivery], list[bytes]]:
        """Take the deliveries of one request: the first one of each key, followed by those queued behind it.

        Args:
            max_deliveries: maximum number of deliveries.
            max_bytes: estimated bytes at which to stop.

        Returns:
            The deliveries, and the keys to release when the request is finished.
        """
        deliveries: list[Delivery] = []
        keys: list[bytes] = []
        size_bytes = 0
        followers: _Followers | None = None
        while len(deliveries) < max_deliveries and size_bytes < max_bytes:
            delivery = self.take(followers)
            if delivery is None:
                break
            if delivery.first_of_key and delivery.key is not None:
                keys.append(delivery.key)
                followers = self._keys.get(delivery.key) if self._ordered else None
            deliveries.append(delivery)
            size_bytes += delivery.event.batch_bytes
        return deliveries, keys

    def release(self, key: bytes | None) -> None:
        """Make the next delivery of a key ready. Call once for each key of a finished request."""
        if key is None or not self._ordered or key not in self._keys:
            return
        followers = self._keys[key]
        if key in self._in_flight:
            self._in_flight.remove(key)
            if followers is not None:
                self._blocked_count -= followers.count
                self._blocked_bytes -= followers.size_bytes
        delivery = followers.next_queued() if followers is not None else None
        if delivery is None:
            del self._keys[key]
            return
        delivery.first_of_key = True
        (self._retried_deliveries if delivery.passes else self._fresh_deliveries).append(delivery)

    def remove_late(self, queued_before_s: float) -> list[Delivery]:
        """Remove and return the deliveries queued before a time, monotonic seconds."""
        late_deliveries = []
        arrivals = self._arrivals
        while arrivals and (
            arrivals[0].state is not DeliveryState.QUEUED or arrivals[0].queued_s < queued_before_s
        ):
            delivery = arrivals.popleft()
            if delivery.state is DeliveryState.QUEUED:
                late_deliveries.append(delivery)
        return self._mark_removed(late_deliveries)

    def remove_partition(self, partition: SourcePartition) -> list[Delivery]:
        """Remove and return the deliveries of a partition."""
        return self._mark_removed(
            [
                delivery
                for delivery in self._arrivals
                if delivery.event.partition is partition and delivery.state is DeliveryState.QUEUED
            ]
        )

    def remove_all(self) -> list[Delivery]:
        """Remove and return all deliveries."""
        queued_deliveries = [
            delivery for delivery in self._arrivals if delivery.state is DeliveryState.QUEUED
        ]
        self._arrivals.clear()
        return self._mark_removed(queued_deliveries)

    def reorder(self, now_s: float, *, ordered: bool) -> None:
        """Queue all deliveries anew after the declared order changed; `now_s`: monotonic, seconds."""
        queued_deliveries = self.remove_all()
        self._fresh_deliveries.clear()
        self._retried_deliveries.clear()
        self._keys.clear()
        self._in_flight.clear()
        self.generation += 1
        self._blocked_count = self._blocked_bytes = 0
        self._ordered = ordered
        for delivery in queued_deliveries:
            delivery.state = DeliveryState.QUEUED
            self.add(delivery, now_s)

    def _ready_deliveries(self) -> deque[Delivery] | None:
        """The fresh or the retried deliveries that may be sent, whichever are next."""
        for deliveries in (self._fresh_deliveries, self._retried_deliveries):
            while deliveries and deliveries[0].state is not DeliveryState.QUEUED:
                deliveries.popleft()
        if self._fresh_deliveries and (self._taken_count % RETRIED_EVERY or not self._retried_deliveries):
            return self._fresh_deliveries
        return self._retried_deliveries or self._fresh_deliveries or None

    def _follow(self, key: bytes, delivery: Delivery) -> None:
        """Queue a delivery behind another one of its key."""
        followers = self._keys[key]
        if followers is None:
            followers = self._keys[key] = _Followers()
        followers.add(delivery)
        if key in self._in_flight:
            self._blocked_count += 1
            self._blocked_bytes += delivery.event.batch_bytes

    def _block_followers(self, key: bytes) -> None:
        """Count the followers of a delivery that is in flight now."""
        self._in_flight.add(key)
        followers = self._keys[key]
        if followers is not None:
            self._blocked_count += followers.count
            self._blocked_bytes += followers.size_bytes

    def _mark_removed(self, deliveries: list[Delivery]) -> list[Delivery]:
        for delivery in deliveries:
            delivery.state = DeliveryState.REMOVED
            self._size_bytes -= delivery.event.batch_bytes
            if not delivery.first_of_key:
                self._subtract_follower(delivery)
        self._length -= len(deliveries)
        self.retried -= sum(delivery.passes > 0 for delivery in deliveries)
        for delivery in deliveries:
            if delivery.first_of_key:
                self.release(delivery.key)
        return deliveries

    def _subtract_follower(self, delivery: Delivery) -> None:
        assert delivery.key is not None
        followers = self._keys[delivery.key]
        assert followers is not None
        followers.subtract(delivery)
        if delivery.key in self._in_flight:
            self._blocked_count -= 1
            self._blocked_bytes -= delivery.event.batch_bytes


class RequestQueue(DeliveryQueue):
    """Requests to send: those that are sent again, before those that are made of queued deliveries."""

    def __init__(self, lease: PartitionLease, *, ordered: bool) -> None:
        """Start empty.

        Args:
            lease: that requests need.
            ordered: keep the order within a key.
        """
        super().__init__(ordered=ordered)
        self._lease = lease
        self._resends: deque[OutboundRequest] = deque()

    @property
    def has_request(self) -> bool:
        """Whether there is anything that may be sent."""
        return bool(self._resends) or self.ready

    def next_request(self, batch: BatchPolicy | None) -> OutboundRequest:
        """Take the next request, or make one of queued deliveries. Only while there is one."""
        if self._resends:
            return self._resends.popleft()
        if batch is not None:
            deliveries, keys = self.take_batch(batch.size, batch.bytes)
            return OutboundRequest(deliveries, keys, self._lease, generation=self.generation)
        delivery = self.take()
        assert delivery is not None
        keys = [delivery.key] if delivery.key is not None else []
        return OutboundRequest([delivery], keys, self._lease, generation=self.generation)

    def batch_wait_s(self, batch: BatchPolicy, now_s: float) -> float:
        """Seconds that an incomplete batch still waits for more deliveries; 0 or less: send it. Only while ready."""
        if self._resends or self.ready_count >= batch.size or self.ready_bytes >= batch.bytes:
            return 0.0
        return self.waiting_since_s + batch.wait - now_s

    def send_first(self, request: OutboundRequest) -> None:
        """Send a request before all others."""
        self._resends.appendleft(request)

    def send_next(self, request: OutboundRequest) -> None:
        """Send a request after the other ones that are sent again, and before queued deliveries."""
        self._resends.append(request)

    def finish(self, request: OutboundRequest) -> None:
        """Release the keys of a request whose deliveries are decided, and send the request that follows it."""
        if request.followed_by is not None:
            self._resends.appendleft(request.followed_by)
        self._release(request)

    def remove_revoked_requests(self) -> list[OutboundRequest]:
        """Remove and return the requests with deliveries of a revoked partition."""
        revoked_requests = [request for request in self._resends if not request.active]
        for request in revoked_requests:
            self._resends.remove(request)
        return revoked_requests

    def remove_waiting(self) -> list[Delivery]:
        """Remove and return all deliveries that wait and are not in flight.

        Queued deliveries are removed then; those of requests stay taken until their outcome is decided.
        """
        waiting_deliveries = self.remove_all()
        resends = list(self._resends)
        self._resends.clear()
        for request in resends:
            split_request = request
            while split_request.followed_by is not None:
                waiting_deliveries += split_request.deliveries
                split_request = split_request.followed_by
            waiting_deliveries += split_request.deliveries
            self._release(split_request)
        return waiting_deliveries

    def _release(self, request: OutboundRequest) -> None:
        if request.generation == self.generation:
            for key in request.keys:
                self.release(key)
