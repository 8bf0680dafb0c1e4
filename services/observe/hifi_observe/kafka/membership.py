"""Group membership that decides which partition numbers this instance observes; it subscribes to `raw` only."""

from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import ConsumerRebalanceListener, TopicPartition

from hifi.kafka.clients import close, group_consumer
from hifi.kafka.partition_lease import PartitionLease
from hifi.kafka.settings import ServiceSettings
from hifi.kafka.topics import Topics

Changed = Callable[[set[int], set[int]], Awaitable[None]]
"""Called with the partition numbers that were added and removed."""


class PartitionMembership(ConsumerRebalanceListener):  # type: ignore[misc]
    """A member of observe's group. Its consumer stays paused and reads no records."""

    def __init__(self, settings: ServiceSettings, topics: Topics, changed: Changed) -> None:
        self._changed = changed
        self._topic = topics.raw
        self._consumer: Any = group_consumer(settings, topics.group("observe"), auto_offset_reset="latest")
        self._lease = PartitionLease(lambda: self._consumer, settings.session_timeout_s)

    def held(self) -> bool:
        """Whether Kafka certainly has not given this member's partition numbers to another one."""
        return self._lease.held()

    @property
    def generation(self) -> int:
        """The generation of the group in which the assignment was last confirmed; it rises with each rebalance."""
        return int(self._consumer.membership.generation)

    async def start(self) -> None:
        """Join the group.

        Raises:
            aiokafka.errors.KafkaError: no broker answers.
        """
        self._consumer.subscribe([self._topic], listener=self)
        await self._consumer.start()

    async def stop(self) -> None:
        """Leave the group, within 5 s."""
        await close(self._consumer)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Partition numbers were assigned to this instance."""
        self._consumer.pause(*assigned)
        await self._changed({tp.partition for tp in assigned}, set())

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Partition numbers are moving to another instance."""
        await self._changed(set(), {tp.partition for tp in revoked})

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Partition numbers have already moved to another instance."""
        await self._changed(set(), {tp.partition for tp in lost})
