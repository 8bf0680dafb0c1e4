"""Decide when the failing deliveries of a destination are parked rather than retried.

A retry costs two copies on disk, in a retry topic and in `retry-out`; a parked delivery is one copy, however long the
outage. What a lane hands over since the last success is bounded in bytes and time, so the copies of an outage are, too.
"""

from typing import Final

from hifi.delivery.destination_state import EGEST, DestinationName, DestinationState, StateChange
from hifi.runtime import log, metrics
from hifi.runtime.clock import monotonic_s, now_us
from hifi_egest.lanes.resources import LaneResources
from hifi_egest.policy.outcome import DeadLettered, Deferral, Parked, RetryLater

_BY_OPERATOR: Final = Deferral("parked", "an operator parked the destination")

logger = log.get(__name__)


class LaneParking:
    """The parking of one destination by one instance."""

    def __init__(self, pipe: str, destination: str, resources: LaneResources) -> None:
        """Start with a destination that has not failed.

        Args:
            pipe: name.
            destination: name.
            resources: states of all destinations, how to change one, and the bounds.
        """
        self._name = DestinationName(pipe, destination)
        self._states = resources.states
        self._budget_bytes = resources.settings.egest_park_bytes
        self._park_after_s = resources.settings.egest_park_after_s
        self._publish = resources.publish_state
        self._gauge = metrics.PARKED.labels(pipe, destination)
        self._handed_over_bytes = 0
        self._failing_since_s: float | None = None
        """Time of the first hand-over since the last success, monotonic seconds."""
        self._requested_s = 0.0
        self.failing = False
        """The next success has to be reported: it ends an outage, or the parking of the destination."""
        self.parked = False
        """Deliveries that would be retried are parked."""
        self.deferral: Deferral | None = None
        """The reason why nothing is sent after an operator parked the destination; None: none did."""
        self.refresh()

    def refresh(self) -> None:
        """Apply the state of the destination. Called periodically."""
        change = self._change = self._states.get(self._name)
        if self.parked and change.state is not DestinationState.PARKED:
            self._failing_since_s = None
        self.parked = change.state is DestinationState.PARKED
        self._gauge.set(int(self.parked))
        self.failing = self.parked or self._failing_since_s is not None
        self.deferral = _BY_OPERATOR if self.parked and change.by != EGEST else None

    def outcome(
        self, decision: RetryLater | DeadLettered, size_bytes: int
    ) -> RetryLater | DeadLettered | Parked:
        """The outcome of a delivery: a retry becomes a parked delivery if the destination is parked."""
        if not isinstance(decision, RetryLater):
            return decision
        if self.parked:
            return Parked(decision.reason, decision.detail)
        now_s = monotonic_s()
        if self._failing_since_s is None:
            self.failing, self._failing_since_s, self._handed_over_bytes = True, now_s, 0
        self._handed_over_bytes += size_bytes
        if self._handed_over_bytes >= self._budget_bytes:
            self._request_state(
                DestinationState.PARKED,
                f"{self._handed_over_bytes} bytes went to the retrier, none succeeded",
            )
        elif now_s - self._failing_since_s >= self._park_after_s:
            self._request_state(
                DestinationState.PARKED,
                f"no delivery has succeeded for {now_s - self._failing_since_s:.0f} s",
            )
        return decision

    def succeeded(self) -> None:
        """End an outage after a delivery succeeded: parked deliveries may come back."""
        self.failing, self._failing_since_s = False, None
        if self.parked and self.deferral is None:
            self._request_state(DestinationState.ACTIVE, "a delivery succeeded")

    def _request_state(self, state: DestinationState, reason: str) -> None:
        """Publish a state in place of the one that is applied, and again after a second until it was read back."""
        now_s = monotonic_s()
        if now_s - self._requested_s < 1.0:
            return
        self._requested_s = now_s
        logger.warning("destination-state", state=state, reason=reason, **self._name._asdict())
        self._publish(self._name, self._change, StateChange(state, EGEST, reason, now_us()))
