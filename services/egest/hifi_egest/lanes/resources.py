"""Services and settings that all lanes share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hifi.delivery.destination_state import DestinationName, DestinationStates, StateChange
from hifi.kafka.stream_log import StreamLog
from hifi.kafka.topics import Tier
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.health import Health
from hifi_egest.delivery.lease import PartitionLease
from hifi_egest.delivery.memory_bounds import InFlightBudget
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
    publish_state: Callable[[DestinationName, StateChange], None]
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
        states: DestinationStates,
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
            states,
            recorder.record_state,
            lambda: registry.coloured,
            stream_log.identity,
        )
