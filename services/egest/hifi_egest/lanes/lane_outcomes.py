"""Record the outcomes of a lane's deliveries, and count those that Kafka has not acknowledged."""

from collections.abc import Iterable, Sequence

from hifi_egest.delivery.delivery import NO_ATTEMPT, Attempt, Delivery, DeliveryState, UnrecordedOutcomes
from hifi_egest.delivery.outbound_request import OutboundRequest
from hifi_egest.lanes.buffer import LaneBuffer
from hifi_egest.lanes.destination_health import Conclusion, DestinationHealth
from hifi_egest.lanes.parking import LaneParking
from hifi_egest.lanes.resources import LaneResources
from hifi_egest.policy.breaker import BreakerState
from hifi_egest.policy.outcome import DeadLettered, Refusal, RetryLater
from hifi_egest.senders.sender import Unsendable


class LaneOutcomes:
    """Takes decided deliveries out of a lane and records their outcomes."""

    def __init__(
        self,
        resources: LaneResources,
        buffer: LaneBuffer,
        health: DestinationHealth,
        parking: LaneParking,
    ) -> None:
        """Start without outcomes.

        Args:
            resources: shared by all lanes; receipts name the instance.
            buffer: of the lane.
            health: of the destination; receipts report its circuit breaker. Replace it with the declaration.
            parking: of the destination.
        """
        self._recorder = resources.recorder
        self._buffer = buffer
        self.health = health
        self._parking = parking
        name = resources.settings.instance.replace(";", "_")  # the separator of a receipt's fields
        self._breaker_headers = {state: f"{state.value}:{name}".encode() for state in BreakerState}
        self.unrecorded = UnrecordedOutcomes()

    def delivered(self, deliveries: Sequence[Delivery], attempt: Attempt) -> None:
        """Record the deliveries of a successful request."""
        if self._parking.failing:
            self._parking.succeeded()
        breaker = self._breaker_headers[self.health.breaker] if self.health.ever_open else b""
        for delivery in deliveries:
            delivery.state = DeliveryState.DECIDED
            delivery.breaker = breaker
            delivery.unrecorded = self.unrecorded
        self.unrecorded.count += len(deliveries)
        self._buffer.left(deliveries)
        self._recorder.delivered(deliveries, attempt)

    def conclude(self, delivery: Delivery, outcome: RetryLater | DeadLettered, attempt: Attempt) -> None:
        """Record a retry, which becomes a parked delivery if the destination is parked, or a dead letter."""
        self._decided(delivery)
        self._recorder.put_away(delivery, self._parking.outcome(outcome, delivery.event.size_bytes), attempt)

    def conclude_all(self, conclusions: Iterable[Conclusion]) -> None:
        """Record retries and dead letters."""
        for delivery, outcome, attempt in conclusions:
            self.conclude(delivery, outcome, attempt)

    def refuse(self, delivery: Delivery, refusal: Refusal, now_s: float) -> None:
        """Record the outcome of a delivery for which no request is sent; `now_s`: monotonic, seconds."""
        self.conclude(delivery, self.health.without_request(delivery, refusal, now_s), NO_ATTEMPT)

    def refuse_request(self, request: OutboundRequest, refusal: Refusal, now_s: float) -> None:
        """Record the outcomes of all deliveries of a request that is not sent."""
        for delivery in request.deliveries:
            self.refuse(delivery, refusal, now_s)
        request.deliveries = []

    def dead_letter_unsendable(self, request: OutboundRequest, unsendable: Unsendable) -> bool:
        """Take deliveries that cannot be sent out of a request; returns whether any are left."""
        for delivery, outcome in unsendable.rejected:
            request.deliveries.remove(delivery)
            self.conclude(delivery, outcome, NO_ATTEMPT)
        return bool(request.deliveries)

    def _decided(self, delivery: Delivery) -> None:
        if delivery.state is DeliveryState.TAKEN:
            self._buffer.left([delivery])
        delivery.state = DeliveryState.DECIDED
        if self.health.ever_open:
            delivery.breaker = self._breaker_headers[self.health.breaker]
        self.unrecorded.count += 1
        delivery.unrecorded = self.unrecorded
