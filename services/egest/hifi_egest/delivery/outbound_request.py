"""What goes out in one request."""

from collections.abc import Sequence

from hifi_egest.delivery.delivery import Delivery
from hifi_egest.delivery.lease import Lease
from hifi_egest.policy.breaker import Permit


class Job:
    """One delivery, or a batch of them.

    Attributes:
        deliveries: in their order.
        keys: that are free again when the job is done.
        then: goes out when this one is done: the other half of a batch.
        permit: of the breaker.
    """

    __slots__ = ("_lease", "deliveries", "keys", "permit", "then")

    def __init__(
        self, deliveries: list[Delivery], keys: Sequence[bytes], lease: Lease, then: "Job | None" = None
    ) -> None:
        self.deliveries = deliveries
        self.keys = keys
        self.then = then
        self.permit = Permit.NORMAL
        self._lease = lease

    def may_send(self) -> bool:
        """The partitions are surely still ours."""
        return self._lease.held() and self.live

    @property
    def live(self) -> bool:
        """None of its partitions is being given up."""
        for delivery in self.deliveries:  # noqa: SIM110 - `all` makes a generator: this is asked before each request
            if not delivery.event.partition.work.active:
                return False
        return True

    def halves(self) -> "Job":
        """The same deliveries in two requests, one after the other."""
        middle = len(self.deliveries) // 2
        second = Job(self.deliveries[middle:], self.keys, self._lease, self.then)
        return Job(self.deliveries[:middle], (), self._lease, second)
