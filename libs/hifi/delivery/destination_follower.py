"""Follow the topic `destinations`."""

import asyncio
from typing import Final

from hifi.delivery.destination_state import DestinationStates
from hifi.kafka.topic_follower import TopicFollower
from hifi.kafka.topics import Topics
from hifi.runtime.running import cancel

REFRESH_S: Final = 1.0
"""Time between two reads of the topic, seconds."""


class DestinationFollower:
    """Keeps the states of all destinations up to date. Start before use, and stop at the end."""

    def __init__(self, bootstrap: str, topics: Topics, client_id: str) -> None:
        """Start without states.

        Args:
            bootstrap: `HOST:PORT,…`.
            topics: of the stream.
            client_id: name in the broker's logs.
        """
        self.states = DestinationStates()
        self._topic = TopicFollower(bootstrap, client_id, {topics.destinations: self.states.take})
        self.task: asyncio.Task[None] | None = None
        """Follows the topic."""

    async def start(self) -> None:
        """Read everything; retries until Kafka answers and the topic exists."""
        await self._topic.start()
        self.task = asyncio.create_task(self._topic.poll(REFRESH_S))

    async def stop(self) -> None:
        """Disconnect."""
        await cancel(self.task)
        await self._topic.stop()

    async def refresh(self) -> None:
        """Read up to the end that the topic has now.

        Raises:
            aiokafka.errors.KafkaError: Kafka did not answer.
        """
        await self._topic.catch_up()
