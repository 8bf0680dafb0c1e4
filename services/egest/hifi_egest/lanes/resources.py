"""Services and settings that all lanes share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hifi.delivery.destination_follower import DestinationFollower
from hifi.delivery.destination_state import DestinationName, DestinationStates, StateChange
from hifi.kafka.partition_lease import PartitionLease
from hifi.kafka.stream_log import StreamLog
from hifi.kafka.topics import Tier
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.health import Health
from hifi_egest.delivery.memory_bounds import InFlightBudget
from hifi_egest.lanes.state_publication import StatePublication
from hifi_egest.outcomes.recorder import OutcomeRecorder
from hifi_egest.settings import EgestSettings


@dataclass(frozen=True)
class LaneResources:
    """The services and settings that every lane uses."""

    settings: EgestSettings
    tiers: Sequence[Tier]
    recorder: OutcomeRecorder
    lease: PartitionLease
    budget: InFlightBudget
    health: Health
    states: DestinationStates
    publish_state: Callable[[DestinationName, StateChange, StateChange], None]
    """Gets a destination, the change of its state that is known, and the one to publish in its place."""
    coloured: Callable[[], bool]
    """Whether the stream is one of two colours."""
    log: Callable[[], str]
    """Identity of the stream's log; raises `Misconfigured` where Kafka does not say it."""

    @classmethod
    def of_stream(
        cls,
        settings: EgestSettings,
        registry: PipeRegistry,
        stream_log: StreamLog,
        destinations: DestinationFollower,
        recorder: OutcomeRecorder,
        lease: PartitionLease,
        budget: InFlightBudget,
        health: Health,
    ) -> "LaneResources":
        """Make the resources of the stream that egest delivers."""
        return cls(
            settings,
            settings.topics.tiers,
            recorder,
            lease,
            budget,
            health,
            destinations.states,
            StatePublication(destinations, recorder.record_state).publish,
            lambda: registry.coloured,
            stream_log.identity,
        )
