"""Find the conditions of alarms every second, and raise alarms on one instance."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hifi.delivery.destination_follower import DestinationFollower
from hifi.delivery.destination_state import DestinationStates
from hifi.kafka.topic_follower import unreadable_records
from hifi.runtime.clock import monotonic_s, now_us
from hifi_observe.alarms import conditions, gauges
from hifi_observe.alarms.alarm import Key
from hifi_observe.alarms.alarm_notifier import AlarmNotifier
from hifi_observe.alarms.owner_conditions import RefusedEvents
from hifi_observe.alarms.owner_notifier import OwnerNotifier
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.pipes import ObservedPipes
from hifi_observe.settings import ObserveSettings

_INTERVAL_S: Final = 1.0
_GAUGES_INTERVAL_S: Final = 5.0

ConditionSource = Callable[[], Mapping[Key, str]]
"""Returns the conditions that hold now, each with its cause."""


class AlarmRaiser:
    """Raises the alarms of the stream and tells the owners of pipes.

    Alarms are raised on the instance with partition 0, without Kafka on the one that had it last.

    Args:
        settings: of the service.
        store: merged minutes and momentary figures.
        pipes: of the stream.
        partitions: that this instance observes.
        notifier: of alarms.
        publisher: of alarms.
    """

    def __init__(
        self,
        settings: ObserveSettings,
        store: MinuteStore,
        pipes: ObservedPipes,
        partitions: ObservedPartitions,
        notifier: AlarmNotifier,
        publisher: Publisher,
    ) -> None:
        self._settings = settings
        self._store = store
        self._pipes = pipes
        self._partitions = partitions
        self._notifier = notifier
        self._publisher = publisher
        self._owners = OwnerNotifier(
            settings, pipes.owner_of, lambda alarm, channels: notifier.owner_told(alarm, channels, publisher)
        )
        self._destination_states = DestinationStates()
        self._thresholds = conditions.Thresholds(
            max(15.0, settings.observe_snapshot_interval_s * 5 + settings.observe_live_interval_s),
            settings.observe_heartbeat_gap_s,
            settings.rating,
            settings.rating_share,
        )
        self.refused = RefusedEvents()
        self.raises = False
        """Whether this instance raises the alarms."""

    async def run(
        self, judge: Callable[[Mapping[Key, str]], None], sources: Sequence[ConditionSource]
    ) -> None:
        """Raise alarms until cancelled.

        Args:
            judge: called every second, on every instance, with the conditions of minutes and momentary figures.
            sources: of further conditions.
        """
        gauges_s = -math.inf
        while True:
            await asyncio.sleep(_INTERVAL_S)
            holding = self._conditions()
            judge(holding)
            holding |= self._owner_conditions() | conditions.unreadable(
                unreadable_records(), self._settings.topics.pipes
            )
            for source in sources:
                holding |= source()
            raised_before = self.raises
            self.raises = self._is_chosen()
            if not self.raises:
                continue
            if not raised_before:
                self._notifier.restore()
            await self._notifier.step(holding, self._publisher if self._partitions.numbers else None)
            # With many pipes this is the most expensive part.
            if monotonic_s() - gauges_s >= _GAUGES_INTERVAL_S:
                gauges_s = monotonic_s()
                gauges.update_gauges(self._store, self._pipes.limits(), self._notifier.alarms.active)

    async def tell_owners(self) -> None:
        """Tell the owners of pipes of problems that only they can repair, until cancelled."""
        while True:
            if self.raises:
                await self._owners.step(self._notifier.told)
            await asyncio.sleep(_INTERVAL_S)

    async def follow_destinations(self) -> None:
        """Follow the states of destinations until cancelled."""
        follower = DestinationFollower(self._settings.kafka, self._settings.topics, self._settings.instance)
        self._destination_states = follower.states
        try:
            await follower.start()
            assert follower.task is not None
            await follower.task
        finally:
            await follower.stop()

    def _is_chosen(self) -> bool:
        numbers = self._partitions.numbers
        return 0 in numbers or (self.raises and not numbers)

    def _conditions(self) -> dict[Key, str]:
        return conditions.find_conditions(
            self._store,
            self._pipes.limits(),
            self._pipes.destinations(),
            now_us(),
            self._publisher.partitions,
            self._thresholds,
        )

    def _owner_conditions(self) -> dict[Key, str]:
        destinations = self._pipes.destinations()
        parked = conditions.parked_destinations(self._destination_states.all(), destinations)
        return parked | self.refused.conditions(destinations, now_us() // 1000)
