"""Offsets are completed in order, whatever the order in which Kafka acknowledges their outputs."""

import asyncio

import pytest
from aiokafka import TopicPartition

from hifi.kafka.assigned_partition import AssignedPartition
from hifi.runtime.errors import Unacknowledged


class Partition(AssignedPartition):
    """Ten records begun; notes its failures."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        super().__init__(TopicPartition("t", 0), fail=self.failures.append)
        for offset in range(10):
            self.offsets.start(offset)


def futures(number: int) -> list[asyncio.Future[None]]:
    return [asyncio.get_running_loop().create_future() for _ in range(number)]


async def yield_to_loop() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_an_acknowledgement_completes_nothing_while_earlier_outputs_are_in_flight() -> None:
    partition = Partition()
    first, second = futures(2)
    partition.complete_when(first, 3)
    partition.complete_when(second, 7)
    second.set_result(None)
    await yield_to_loop()
    assert partition.offsets.committable is None
    first.set_result(None)
    await yield_to_loop()
    assert partition.offsets.committable == 8


@pytest.mark.parametrize("abandoned", [False, True])
async def test_nothing_after_outputs_that_are_lost_is_completed(abandoned: bool) -> None:
    partition = Partition()
    first, second = futures(2)
    partition.complete_when(first, 3)
    partition.complete_when(second, 7)
    if abandoned:
        first.cancel()
    else:
        first.set_exception(Unacknowledged("lost"))
    second.set_result(None)
    await yield_to_loop()
    assert partition.offsets.committable is None
    assert len(partition.failures) == 1
    await asyncio.wait_for(partition.drain(), 5)  # it leaves them to the next owner


async def test_outputs_in_flight_are_waited_for_although_the_records_behind_them_are_abandoned() -> None:
    partition = Partition()
    [first_future] = futures(1)
    partition.complete_when(first_future, 3)
    partition.abandon()
    draining = asyncio.ensure_future(partition.drain())
    await yield_to_loop()
    assert not draining.done()
    first_future.set_result(None)
    await asyncio.wait_for(draining, 5)
    assert partition.offsets.committable == 4
    [lost] = futures(1)
    partition.complete_when(lost, 5)
    draining = asyncio.ensure_future(partition.drain())
    await yield_to_loop()
    assert not draining.done()
    lost.set_exception(Unacknowledged("lost"))
    await asyncio.wait_for(draining, 5)
    assert partition.failures == [], "its membership ends already"


async def test_a_handler_waits_for_the_outputs_of_earlier_batches() -> None:
    partition = Partition()
    [first_future] = futures(1)
    partition.complete_when(first_future, 3)
    waiting = asyncio.ensure_future(partition.outputs_acknowledged())
    await yield_to_loop()
    assert not waiting.done()
    first_future.set_result(None)
    await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(partition.outputs_acknowledged(), 5)


def test_deleted_offsets_are_those_over_which_the_position_was_reset() -> None:
    partition = AssignedPartition(TopicPartition("t", 0), committed=10)
    partition.begin_take(10)
    partition.end_take(15)  # records up to 12, and markers
    partition.begin_take(None)  # the position is being reset
    partition.end_take(None)
    partition.begin_take(15)
    partition.end_take(15)
    assert partition.deleted == []
    partition.begin_take(40)
    partition.end_take(41)
    partition.begin_take(3)  # lower: Kafka has lost records
    assert partition.deleted == [range(15, 40)]
    first_assignment = AssignedPartition(TopicPartition("t", 0))
    first_assignment.begin_take(50)
    assert first_assignment.deleted == [], "it was not read before"
