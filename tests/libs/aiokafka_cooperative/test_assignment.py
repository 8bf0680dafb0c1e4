"""Held partitions are changed in place."""

import asyncio

from aiokafka import TopicPartition

from aiokafka_cooperative.assignment import HeldAssignment

WITHIN_S = 10


async def test_what_is_let_go_has_no_position_for_answers_that_come_late() -> None:
    removed_partition, new_partition = TopicPartition("some.topic", 0), TopicPartition("some.topic", 1)
    assignment = HeldAssignment({})
    assignment.add({removed_partition, new_partition})
    states = assignment.states()
    states[removed_partition].seek(7)
    waiting = states[new_partition].wait_for_position()
    assignment.remove({removed_partition, new_partition})
    await asyncio.wait_for(waiting, WITHIN_S)  # to see that there is none
    assert not assignment.tps
    for tp, state in states.items():
        assert assignment.state_value(tp) is state, "aiokafka's fetcher looks for it, and then at these:"
        assert not state.has_valid_position
        assert state.paused
    assignment.add({removed_partition})
    assert assignment.states()[removed_partition] is not states[removed_partition]
