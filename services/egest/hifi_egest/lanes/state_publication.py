"""Publish the state of a destination in place of the one that egest knows, never of one that came since."""

import asyncio
from collections.abc import Callable

from aiokafka.errors import KafkaError

from hifi.delivery.destination_follower import DestinationFollower
from hifi.delivery.destination_state import DestinationName, StateChange
from hifi.runtime import log

logger = log.get(__name__)


class StatePublication:
    """Publishes states after it has read the topic `destinations` to its end."""

    def __init__(
        self, destinations: DestinationFollower, write: Callable[[DestinationName, StateChange], None]
    ) -> None:
        """Publish nothing yet.

        Args:
            destinations: started before the first use.
            write: writes a state to the topic.
        """
        self._destinations = destinations
        self._write = write
        self._tasks: set[asyncio.Task[None]] = set()

    def publish(self, name: DestinationName, earlier_change: StateChange, change: StateChange) -> None:
        """Publish `change` unless the destination's state is not `earlier_change` any more, or Kafka is away."""
        task = asyncio.get_running_loop().create_task(self._publish(name, earlier_change, change))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish(self, name: DestinationName, earlier_change: StateChange, change: StateChange) -> None:
        try:
            await self._destinations.refresh()
        except (KafkaError, OSError) as error:
            logger.warning("destination-state-unread", error=repr(error), **name._asdict())
            return
        newest_change = self._destinations.states.get(name)
        if newest_change == earlier_change:
            self._write(name, change)
        else:
            logger.info(
                "destination-state-kept", state=newest_change.state, by=newest_change.by, **name._asdict()
            )
