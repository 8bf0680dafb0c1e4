"""A consumer group on topics of its own, with traffic, and with a record of everything its members saw."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient
from tests.support.aiokafka_cooperative.members import (
    WITHIN_S,
    AnyMember,
    Javas,
    Ours,
    ReadLog,
    Theirs,
    TopicTraffic,
    until,
)


class GroupWithTraffic:
    """A group on topics of its own, with the traffic through them and all that its members saw."""

    def __init__(self, kafka: str, topics: list[str], partitions: int) -> None:
        self.kafka = kafka
        self.topics = topics
        self.all = {TopicPartition(topic, number) for topic in topics for number in range(partitions)}
        self.id = f"group.{uuid.uuid4().hex[:12]}"
        self.read_log: ReadLog = []
        self.traffic = TopicTraffic(kafka, topics, partitions)
        self.members: list[AnyMember] = []
        self._admin: Any = AdminClient({"bootstrap.servers": kafka})

    def ours(self) -> Ours:
        """One more member with our consumer; it is still to be started."""
        member = Ours(self.kafka, self.id, self.topics, self.read_log, f"ours-{len(self.members)}")
        self.members.append(member)
        return member

    def theirs(self) -> Theirs:
        """One more member with librdkafka's consumer; it is still to be started."""
        member = Theirs(self.kafka, self.id, self.topics, self.read_log, f"theirs-{len(self.members)}")
        self.members.append(member)
        return member

    def javas(self) -> Javas:
        """One more member with Java's consumer; it is still to be started."""
        member = Javas(self.kafka, self.id, self.topics, self.read_log, f"javas-{len(self.members)}")
        self.members.append(member)
        return member

    async def leave(self, member: AnyMember) -> None:
        self.members.remove(member)
        await member.stop()

    async def balanced(self) -> None:
        """Wait until all partitions are assigned, evenly, and each once."""

        def even() -> bool:
            for member in self.members:
                member.check()
            loads = [len(member.assigned) for member in self.members]
            union = set().union(*(member.assigned for member in self.members))
            return union == self.all and sum(loads) == len(self.all) and max(loads) - min(loads) <= 1

        await until(even, "all partitions are assigned evenly")
        # One who has nothing to gain or to give may still be joining. librdkafka's consumer does not hold commits
        # back meanwhile, so its commit as it leaves would be refused.
        async with asyncio.timeout(WITHIN_S):
            while await asyncio.to_thread(self._state) is not ConsumerGroupState.STABLE:
                pass

    def _state(self) -> ConsumerGroupState:
        description = self._admin.describe_consumer_groups([self.id])[self.id]
        state: ConsumerGroupState = description.result().state
        return state

    def count(self, member: AnyMember, tp: TopicPartition) -> int:
        return sum(name == member.name and (topic, number) == tp for name, topic, number, _ in self.read_log)

    async def more_of(
        self, member: AnyMember, partitions: Iterable[TopicPartition], records: int = 20
    ) -> None:
        """Wait until the member has worked on `records` more records of each of the partitions."""
        before = {tp: self.count(member, tp) for tp in partitions}
        await until(
            lambda: all(
                self.count(member, tp) >= count_before + records for tp, count_before in before.items()
            ),
            f"{member.name} goes on with {sorted(before)}",
        )

    async def finish(self) -> tuple[int, int, int]:
        """End the traffic, read to its end, leave: (sent, lost, worked on twice)."""
        await self.traffic.end()
        sent_offsets = {(*tp, offset) for tp, count in self.traffic.sent.items() for offset in range(count)}
        await until(
            lambda: {receipt[1:] for receipt in self.read_log} >= sent_offsets, "all records were read"
        )
        for member in list(self.members):
            await self.leave(member)
        times = Counter(receipt[1:] for receipt in self.read_log)
        return len(sent_offsets), len(sent_offsets - times.keys()), sum(count - 1 for count in times.values())


MakeGroup = Callable[..., Any]


def group(kafka: str) -> MakeGroup:
    """`async with group(partitions=6) as group`: a group, whose traffic runs."""

    @asynccontextmanager
    async def make(partitions: int, topics: int = 1) -> AsyncIterator[GroupWithTraffic]:
        topic_names = [f"cooperative.{uuid.uuid4().hex[:12]}" for _ in range(topics)]
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(name, partitions, 1) for name in topic_names])
        finally:
            await admin.close()
        group = GroupWithTraffic(kafka, topic_names, partitions)
        async with group.traffic:
            try:
                yield group
            finally:
                await asyncio.gather(*(member.stop() for member in group.members), return_exceptions=True)

    return make
