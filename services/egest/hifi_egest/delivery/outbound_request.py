"""The deliveries of one request."""

from collections.abc import Sequence

from aiokafka import ConsumerRecord

from hifi_egest.delivery.delivery import Delivery
from hifi_egest.delivery.lease import PartitionLease
from hifi_egest.policy.breaker import Permit


class OutboundRequest:
    """One delivery, or a batch of them.

    Attributes:
        deliveries: in the order in which they are sent.
        keys: to release once the request is finished.
        followed_by: the second half of a split batch, sent after this request.
        permit: of the circuit breaker.
    """

    __slots__ = ("_lease", "deliveries", "followed_by", "keys", "permit")

    def __init__(
        self,
        deliveries: list[Delivery],
        keys: Sequence[bytes],
        lease: PartitionLease,
        followed_by: "OutboundRequest | None" = None,
    ) -> None:
        self.deliveries = deliveries
        self.keys = keys
        self.followed_by = followed_by
        self.permit = Permit.NORMAL
        self._lease = lease

    def may_send(self) -> bool:
        """Whether all its partitions certainly still belong to this instance."""
        return self._lease.held() and self.active

    @property
    def active(self) -> bool:
        """Whether none of its partitions is being revoked."""
        for delivery in self.deliveries:  # noqa: SIM110 - `all` makes a generator: this runs before each request
            if not delivery.event.partition.assigned.active:
                return False
        return True

    def records(self) -> list[ConsumerRecord]:
        """The record of each delivery."""
        return [delivery.event.record for delivery in self.deliveries]

    def count_attempt(self, started_s: float, started_us: int) -> None:
        """Count a request that was sent.

        Args:
            started_s: when it started, monotonic seconds.
            started_us: the same, microseconds since 1970 UTC.
        """
        for delivery in self.deliveries:
            delivery.attempts += 1
            delivery.local += 1
            if delivery.local == 1:
                delivery.pass_started_s = started_s
            if not delivery.started_us:
                delivery.started_us = started_us

    def count_ambiguous(self) -> None:
        """Count a request that may have arrived although no answer came."""
        for delivery in self.deliveries:
            delivery.ambiguous += 1

    def split(self, middle: int | None = None) -> "OutboundRequest":
        """The same deliveries as two requests, one after the other; returns the first.

        Args:
            middle: number of deliveries of the first one; None: half of them.
        """
        middle = len(self.deliveries) // 2 if middle is None else middle
        second = OutboundRequest(self.deliveries[middle:], self.keys, self._lease, self.followed_by)
        return OutboundRequest(self.deliveries[:middle], (), self._lease, second)
