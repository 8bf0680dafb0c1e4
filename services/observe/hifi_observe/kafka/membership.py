"""Which partition numbers this instance observes: membership of a group on the topic `raw` alone."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import ConsumerRebalanceListener, TopicPartition

from hifi.kafka.clients import group_consumer
from hifi.settings import ServiceSettings
from hifi.topics import Topics

Changed = Callable[[set[int], set[int]], Awaitable[None]]
"""Called with the partition numbers that were added and taken."""


class GroupMembership(ConsumerRebalanceListener):  # type: ignore[misc]
    """Joins the group; reads nothing of `raw` itself."""

    def __init__(self, settings: ServiceSettings, topics: Topics, changed: Changed) -> None:
        self._changed = changed
        self._topic = topics.raw
        self._consumer: Any = group_consumer(settings, topics.group("observe"), auto_offset_reset="latest")

    async def start(self) -> None:
        """Join.

        Raises:
            aiokafka.errors.KafkaError: no broker answers.
        """
        self._consumer.subscribe([self._topic], listener=self)
        await self._consumer.start()

    async def stop(self) -> None:
        """Leave, within a bound."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._consumer.stop(), timeout=5)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """New partition numbers."""
        self._consumer.pause(*assigned)
        await self._changed({tp.partition for tp in assigned}, set())

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Partition numbers that another instance takes over."""
        await self._changed(set(), {tp.partition for tp in revoked})

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Partition numbers that another instance has already."""
        await self._changed(set(), {tp.partition for tp in lost})
