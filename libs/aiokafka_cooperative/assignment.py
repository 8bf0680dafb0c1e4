"""The partitions that a member holds, kept over rebalances."""
# ruff: noqa: SLF001 - aiokafka has no public interface for this

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from aiokafka import TopicPartition
from aiokafka.consumer.subscription_state import Assignment, TopicPartitionState


class AssignmentChange(NamedTuple):
    """The partitions that a new assignment takes away from the held ones, and those that it adds."""

    revoked: frozenset[TopicPartition]
    added: frozenset[TopicPartition]


class HeldAssignment(Assignment):  # type: ignore[misc]
    """An aiokafka Assignment that is changed in place.

    aiokafka makes a new Assignment at each rebalance, and its fetcher then drops all fetched records and running
    requests. This one stays the same object: the fetcher, which looks at it before each request, finds partitions
    added or removed, and the others keep their position, pause and records.
    """

    def __init__(self, states: Mapping[TopicPartition, TopicPartitionState]) -> None:
        super().__init__(list(states))
        for tp, state in states.items():
            state._assignment = self
            self._tp_state[tp] = state

    def states(self) -> dict[TopicPartition, TopicPartitionState]:
        """Aiokafka's state of each partition: the same object for as long as the partition is held."""
        return {tp: self._tp_state[tp] for tp in self.tps}

    def change_to(self, assigned_partitions: AbstractSet[TopicPartition]) -> AssignmentChange:
        """The difference between the held partitions and a new assignment."""
        return AssignmentChange(
            frozenset(self.tps - assigned_partitions), frozenset(assigned_partitions - self.tps)
        )

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin to hold partitions. The fetcher requests their committed offsets."""
        partitions = set(partitions)
        self._tp_state |= {tp: TopicPartitionState(self) for tp in partitions}
        self._topic_partitions |= partitions

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch and hand out no more records of these partitions."""
        for tp in partitions:
            self._tp_state[tp].pause()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop holding partitions.

        Their states stay behind, without a position: the response of a running fetch looks for them, and then drops
        its records. A coroutine that waits for the position is released and has to look again.
        """
        partitions = set(partitions)
        self.pause(partitions)
        self._topic_partitions -= partitions
        for state in (self._tp_state[tp] for tp in partitions):
            state._position = None
            if not state._position_fut.done():
                state._position_fut.set_result(None)

    def requesting_committed(self) -> list[TopicPartition]:
        """Partitions whose committed offset is requested, including removed ones: all fetches wait for these."""
        return [tp for tp, state in self._tp_state.items() if state._committed_futs]
