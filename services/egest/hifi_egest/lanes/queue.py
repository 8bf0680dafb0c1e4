"""A lane's queue: the order in which its deliveries go, one of a key at a time. Pure."""

from collections import deque
from typing import Final

from hifi_egest.delivery.delivery import Delivery, Place
from hifi_egest.delivery.partition import Partition

TURNS: Final = 4
"""While both wait, one delivery out of so many is a retried one: neither kind starves."""


class Queue:
    """Deliveries that wait. Of each key one leads; the others follow when `release` says that it is done."""

    def __init__(self, *, ordered: bool) -> None:
        self._ordered = ordered
        self._fresh: deque[Delivery] = deque()
        self._retried: deque[Delivery] = deque()
        self._keys: dict[bytes, deque[Delivery] | None] = {}
        self._arrivals: deque[Delivery] = deque()
        self._turn = 0
        self._length = 0
        self.retried = 0
        """How many of them have been through the retrier."""

    def __len__(self) -> int:
        return self._length

    def add(self, delivery: Delivery, now_s: float) -> None:
        """Queue up."""
        delivery.queued_s = now_s
        self._length += 1
        self.retried += delivery.passes > 0
        self._arrivals.append(delivery)
        key = delivery.key
        if key is None or not self._ordered:
            self._ready(delivery)
        elif key in self._keys:
            followers = self._keys[key]
            if followers is None:
                followers = self._keys[key] = deque()
            followers.append(delivery)
        else:
            self._keys[key] = None
            self._ready(delivery)

    @property
    def ready(self) -> bool:
        """Some delivery may be sent."""
        return self._front() is not None

    @property
    def waiting_since_s(self) -> float:
        """When the one that goes next was queued, monotonic; only while some is ready."""
        line = self._front()
        assert line is not None
        return line[0].queued_s

    @property
    def leaders(self) -> int:
        """About how many may be sent now."""
        return len(self._fresh) + len(self._retried)

    def take(self) -> Delivery | None:
        """The next one; its key is busy until `release`."""
        line = self._front()
        if line is None:
            return None
        self._turn += 1
        return self._taken(line.popleft())

    def follower(self, leader: Delivery) -> Delivery | None:
        """The next one of the same key, to go in the same request, after it."""
        followers = self._keys.get(leader.key) if leader.key is not None and self._ordered else None
        while followers:
            delivery = followers.popleft()
            if delivery.place is Place.QUEUED:
                return self._taken(delivery)
        return None

    def release(self, key: bytes | None) -> None:
        """What was sent of this key is done: the next one may go. Once for each key of a request."""
        if key is None or not self._ordered or key not in self._keys:
            return
        followers = self._keys[key]
        while followers:
            delivery = followers.popleft()
            if delivery.place is Place.QUEUED:
                self._ready(delivery)
                return
        del self._keys[key]

    def late(self, before_s: float) -> list[Delivery]:
        """Take out those that were queued before a time, monotonic seconds."""
        found = []
        arrivals = self._arrivals
        while arrivals and (arrivals[0].place is not Place.QUEUED or arrivals[0].queued_s < before_s):
            delivery = arrivals.popleft()
            if delivery.place is Place.QUEUED:
                found.append(delivery)
        return self._gone(found)

    def of(self, partition: Partition) -> list[Delivery]:
        """Take out those of a partition."""
        return self._gone(
            [one for one in self._arrivals if one.event.partition is partition and one.place is Place.QUEUED]
        )

    def all(self) -> list[Delivery]:
        """Take out all."""
        found = [delivery for delivery in self._arrivals if delivery.place is Place.QUEUED]
        self._arrivals.clear()
        return self._gone(found)

    def _front(self) -> deque[Delivery] | None:
        for line in (self._fresh, self._retried):
            while line and line[0].place is not Place.QUEUED:
                line.popleft()
        if self._fresh and (self._turn % TURNS or not self._retried):
            return self._fresh
        return self._retried or self._fresh or None

    def _ready(self, delivery: Delivery) -> None:
        delivery.leads = True
        (self._retried if delivery.passes else self._fresh).append(delivery)

    def _taken(self, delivery: Delivery) -> Delivery:
        delivery.place = Place.TAKEN
        self._length -= 1
        self.retried -= delivery.passes > 0
        arrivals = self._arrivals
        while arrivals and arrivals[0].place is not Place.QUEUED:
            arrivals.popleft()
        return delivery

    def _gone(self, deliveries: list[Delivery]) -> list[Delivery]:
        for delivery in deliveries:
            delivery.place = Place.GONE
        self._length -= len(deliveries)
        self.retried -= sum(delivery.passes > 0 for delivery in deliveries)
        for delivery in deliveries:
            if delivery.leads:
                self.release(delivery.key)
        return deliveries
