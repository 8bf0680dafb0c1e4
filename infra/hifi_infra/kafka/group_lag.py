"""Lag of each member of a service's consumer group: the age of the oldest record that it has not committed.

Kafka tells positions, not times, so the ends of the partitions are remembered with the time at which they were seen.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any, Final, Self

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import KafkaError

from hifi.kafka.clients import admin_client, assigned_consumer
from hifi.kafka.topics import Topics
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import Retryable

_ANSWER_S: Final = 5.0
_KEPT: Final = 600
"""Ends remembered for each partition; an older record counts as old as the first of them."""


class EndHistory:
    """End offsets of a partition and the times at which they were seen. Pure."""

    def __init__(self) -> None:
        self._end_offsets: deque[tuple[float, int]] = deque(maxlen=_KEPT)

    def see(self, now_s: float, end: int) -> None:
        """Remember the end at a time, which only rises."""
        self._end_offsets.append((now_s, end))

    def lag_s(self, committed: int) -> float:
        """Age of the record at a position, seconds; 0 if there is none yet. It is as old as the look before it."""
        if not self._end_offsets or committed >= self._end_offsets[-1][1]:
            return 0.0
        now_s = self._end_offsets[-1][0]
        passed_s = next(
            (at_s for at_s, end in reversed(self._end_offsets) if end <= committed), self._end_offsets[0][0]
        )
        return now_s - passed_s


class GroupLag:
    """Reads the lag of each member of a group, about once a second.

    Args:
        bootstrap: `HOST:PORT,…`.
        client_id: name in the logs and quotas of the broker.
        topics: the stream's.
    """

    def __init__(self, bootstrap: str, client_id: str, topics: Topics) -> None:
        self._topics = topics
        self._bootstrap, self._client_id = bootstrap, client_id
        self._admin: AIOKafkaAdminClient | None = None
        self._consumer: Any = None
        self._histories: defaultdict[TopicPartition, EndHistory] = defaultdict(EndHistory)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Disconnect; the next reading connects anew."""
        admin, self._admin = self._admin, None
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()
        if admin is not None:
            await admin.close()

    async def read(self, service: str) -> Mapping[str, float]:
        """Client id of a member to its lag in seconds, the largest of its partitions.

        Raises:
            Retryable: Kafka did not answer.
        """
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await self._read(self._topics.group(service))
        except (KafkaError, OSError, TimeoutError) as error:
            await self.stop()
            raise Retryable(f"the lag of {service} cannot be read: {error!r}") from error

    async def _read(self, group: str) -> Mapping[str, float]:
        if self._admin is None:
            self._admin = admin_client(self._bootstrap, self._client_id)
            await self._admin.start()
        if self._consumer is None:
            self._consumer = assigned_consumer(self._bootstrap, self._client_id)
            await self._consumer.start()
        (answer,) = await self._admin.describe_consumer_groups([group])
        (group_description,) = answer.to_object()["groups"]
        members = {
            member["client_id"]: ConsumerProtocol.ASSIGNMENT.decode(member["member_assignment"]).partitions()
            for member in group_description["members"]
            if member["member_assignment"]
        }
        committed_offsets = await self._admin.list_consumer_group_offsets(group)
        partitions = [tp for member_partitions in members.values() for tp in member_partitions]
        end_offsets = await self._consumer.end_offsets(partitions) if partitions else {}
        now_s = monotonic_s()
        for partition, end in end_offsets.items():
            self._histories[partition].see(now_s, end)
        return {
            client_id: max(
                self._histories[tp].lag_s(committed_offsets[tp].offset if tp in committed_offsets else 0)
                for tp in member_partitions
            )
            for client_id, member_partitions in members.items()
            if member_partitions
        }
