"""The queue of a lane: the order in which deliveries are sent, one of each key at a time. Pure."""

from collections import deque
from typing import Final

from hifi_egest.delivery.delivery import Delivery, DeliveryState
from hifi_egest.delivery.partition import SourcePartition

_ENVELOPE_BYTES: Final = 256
"""Estimated size of an event's attributes in a batch."""
RETRIED_EVERY: Final = 4
"""While both kinds wait, one of this many deliveries is a retried one, so that neither kind starves."""


class _Followers:
    """Deliveries that wait for another one of their key.

    Attributes:
        line: in their order; those that were removed stay until they are next.
        count: number of those that are still queued.
        size_bytes: their estimated size in a batch.
    """

    __slots__ = ("count", "line", "size_bytes")

    def __init__(self) -> None:
        self.line: deque[Delivery] = deque()
        self.count = 0
        self.size_bytes = 0

    def add(self, delivery: Delivery) -> None:
        self.line.append(delivery)
        self.count += 1
        self.size_bytes += _batch_bytes(delivery)

    def subtract(self, delivery: Delivery) -> None:
        """Count a delivery that is not queued here any more."""
        self.count -= 1
        self.size_bytes -= _batch_bytes(delivery)

    def next_queued(self) -> Delivery | None:
        while self.line:
            delivery = self.line.popleft()
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
        self._fresh: deque[Delivery] = deque()
        self._retried: deque[Delivery] = deque()
        self._keys: dict[bytes, _Followers | None] = {}
        """Keys of which a delivery is ready or in flight, with the deliveries that wait for it."""
        self._in_flight: set[bytes] = set()
        """Keys of which a delivery is in flight. What follows it cannot be sent before `release`."""
        self._held_count = 0
        self._held_bytes = 0
        self._size_bytes = 0
        self._arrivals: deque[Delivery] = deque()
        self._taken_count = 0
        self._length = 0
        self.retried = 0
        """Queued deliveries that have been through the retrier."""

    def __len__(self) -> int:
        return self._length

    def add(self, delivery: Delivery, now_s: float) -> None:
        """Queue a delivery."""
        delivery.queued_s = now_s
        delivery.first_of_key = False
        self._length += 1
        self._size_bytes += _batch_bytes(delivery)
        self.retried += delivery.passes > 0
        self._arrivals.append(delivery)
        key = delivery.key
        if key is None or not self._ordered:
            self._make_ready(delivery)
        elif key in self._keys:
            followers = self._keys[key]
            if followers is None:
                followers = self._keys[key] = _Followers()
            followers.add(delivery)
            if key in self._in_flight:
                self._held_count += 1
                self._held_bytes += _batch_bytes(delivery)
        else:
            self._keys[key] = None
            self._make_ready(delivery)

    @property
    def ready(self) -> bool:
        """Whether a delivery may be sent."""
        return self._front() is not None

    @property
    def waiting_since_s(self) -> float:
        """When the next delivery was queued, monotonic seconds; only while one is ready."""
        line = self._front()
        assert line is not None
        return line[0].queued_s

    @property
    def ready_count(self) -> int:
        """Number of deliveries that batches could take now: all but those that follow one in flight."""
        return self._length - self._held_count

    @property
    def ready_bytes(self) -> int:
        """Their estimated size in a batch."""
        return self._size_bytes - self._held_bytes

    def take(self) -> Delivery | None:
        """Take the next delivery; no other one of its key is ready until `release`."""
        line = self._front()
        if line is None:
            return None
        self._taken_count += 1
        delivery = line.popleft()
        if delivery.key is not None and self._ordered:
            self._in_flight.add(delivery.key)
            followers = self._keys[delivery.key]
            if followers is not None:
                self._held_count += followers.count
                self._held_bytes += followers.size_bytes
        return self._taken(delivery)

    def take_batch(self, size: int, max_bytes: int) -> tuple[list[Delivery], list[bytes]]:
        """Take the deliveries of one request: those of the first one's key follow it, then those of other keys.

        Args:
            size: maximum number of deliveries.
            max_bytes: number of bytes, estimated, from which on none is added.

        Returns:
            The deliveries, and the keys to release when the request is finished.
        """
        taken: list[Delivery] = []
        keys: list[bytes] = []
        size_bytes = 0
        followers: _Followers | None = None
        while True:
            delivery = followers.next_queued() if followers is not None else None
            if delivery is not None:
                self._held_count -= 1
                self._held_bytes -= _batch_bytes(delivery)
                self._taken(delivery)
            else:
                delivery = self.take()
                if delivery is None:
                    break
                if delivery.key is not None:
                    keys.append(delivery.key)
                    followers = self._keys.get(delivery.key) if self._ordered else None
            taken.append(delivery)
            size_bytes += _batch_bytes(delivery)
            if len(taken) >= size or size_bytes >= max_bytes:
                break
        return taken, keys

    def release(self, key: bytes | None) -> None:
        """Make the next delivery of a key ready. Call once for each key of a finished request."""
        if key is None or not self._ordered or key not in self._keys:
            return
        followers = self._keys[key]
        if key in self._in_flight:
            self._in_flight.remove(key)
            if followers is not None:
                self._held_count -= followers.count
                self._held_bytes -= followers.size_bytes
        delivery = followers.next_queued() if followers is not None else None
        if delivery is not None:
            self._make_ready(delivery)
        else:
            del self._keys[key]

    def remove_late(self, before_s: float) -> list[Delivery]:
        """Remove and return the deliveries queued before a time, monotonic seconds."""
        found = []
        arrivals = self._arrivals
        while arrivals and (arrivals[0].state is not DeliveryState.QUEUED or arrivals[0].queued_s < before_s):
            delivery = arrivals.popleft()
            if delivery.state is DeliveryState.QUEUED:
                found.append(delivery)
        return self._removed(found)

    def remove_partition(self, partition: SourcePartition) -> list[Delivery]:
        """Remove and return the deliveries of a partition."""
        return self._removed(
            [
                each
                for each in self._arrivals
                if each.event.partition is partition and each.state is DeliveryState.QUEUED
            ]
        )

    def remove_all(self) -> list[Delivery]:
        """Remove and return all deliveries."""
        found = [delivery for delivery in self._arrivals if delivery.state is DeliveryState.QUEUED]
        self._arrivals.clear()
        return self._removed(found)

    def _front(self) -> deque[Delivery] | None:
        for line in (self._fresh, self._retried):
            while line and line[0].state is not DeliveryState.QUEUED:
                line.popleft()
        if self._fresh and (self._taken_count % RETRIED_EVERY or not self._retried):
            return self._fresh
        return self._retried or self._fresh or None

    def _make_ready(self, delivery: Delivery) -> None:
        delivery.first_of_key = True
        (self._retried if delivery.passes else self._fresh).append(delivery)

    def _taken(self, delivery: Delivery) -> Delivery:
        delivery.state = DeliveryState.TAKEN
        self._length -= 1
        self._size_bytes -= _batch_bytes(delivery)
        self.retried -= delivery.passes > 0
        arrivals = self._arrivals
        while arrivals and arrivals[0].state is not DeliveryState.QUEUED:
            arrivals.popleft()
        return delivery

    def _removed(self, deliveries: list[Delivery]) -> list[Delivery]:
        for delivery in deliveries:
            delivery.state = DeliveryState.REMOVED
            self._size_bytes -= _batch_bytes(delivery)
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
            self._held_count -= 1
            self._held_bytes -= _batch_bytes(delivery)


def _batch_bytes(delivery: Delivery) -> int:
    return len(delivery.event.record.value or b"") + _ENVELOPE_BYTES
