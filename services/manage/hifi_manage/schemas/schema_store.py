"""The schema registry in its topic: the newest state, and changes that no two instances make at once.

An instance that changes it initializes the transactional producer of the registry, which fences the previous instance,
and reads the topic to its end. Nobody can add anything between that and the change, so no id is given twice.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from hifi.kafka.fenced_writer import FencedWriter, Overtaken
from hifi.kafka.topic_follower import TopicFollower
from hifi.runtime.errors import Retryable
from hifi_manage.schemas.changes import RegistryChange
from hifi_manage.schemas.registered import Registered

_TRIES: Final = 12
_ANSWER_S: Final = 10.0
_AFTER_OTHERS_S: Final = 0.2
"""Longest pause after another instance was first, seconds."""
_MARKER_S: Final = 0.01
"""Kafka acknowledges a transaction before readers see it; time between two looks, seconds."""

Plan = Callable[[Registered], RegistryChange]
"""Decides about a change from the newest state; may refuse it."""


class SchemaStore:
    """Reads and changes the registry.

    Args:
        bootstrap: the control plane's Kafka, `HOST:PORT,…`.
        topic: `schemas`.
        transactional_id: the same for all instances.
        client_id: name in the broker's logs.
    """

    def __init__(self, bootstrap: str, topic: str, transactional_id: str, client_id: str) -> None:
        self.registered = Registered()
        self._topic = topic
        self._follower = TopicFollower(bootstrap, client_id, {topic: self.registered.take}, rereads=False)
        self._writer = FencedWriter(bootstrap, transactional_id, client_id)
        self._owns = False
        """Whether the producer was initialized by this instance and nothing has failed since."""
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Connect and read everything; retries until Kafka answers and the topic exists."""
        await self._follower.start()

    async def stop(self) -> None:
        """Disconnect."""
        await self._writer.stop()
        await self._follower.stop()

    async def catch_up(self) -> None:
        """Read up to the end that the topic has now.

        Raises:
            aiokafka.errors.KafkaError: Kafka did not answer.
        """
        await self._follower.catch_up()

    async def change(self, plan: Plan) -> RegistryChange:
        """Make a change; returns it as it was decided at last.

        Raises:
            Retryable: Kafka did not answer, or others change the registry all the time.
            aiokafka.errors.KafkaError, TimeoutError: Kafka did not answer.
        """
        async with self._changing:
            for _ in range(_TRIES):
                owns, self._owns = self._owns, False
                try:
                    async with asyncio.timeout(_ANSWER_S):
                        registry_change = await self._attempt_change(plan, owns=owns)
                except Overtaken:
                    await asyncio.sleep(random.uniform(0, _AFTER_OTHERS_S))  # noqa: S311 - spreads retries
                except Retryable:
                    continue  # whether it was written shows when the topic is read again
                else:
                    self._owns = True
                    return registry_change
            raise Retryable("others change the schema registry all the time")

    async def _attempt_change(self, plan: Plan, *, owns: bool) -> RegistryChange:
        if not owns:
            await self._writer.stop()
            await self._writer.start()
        await self.catch_up()
        registry_change = plan(self.registered)
        if registry_change.records:
            offset = await self._writer.write(self._topic, registry_change.records)
            while self.registered.last_offset < offset:
                await asyncio.sleep(_MARKER_S)
                await self.catch_up()
        return registry_change
