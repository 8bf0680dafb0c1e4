"""Parts of the coordinator that need no Kafka."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import NoError, UnknownTopicOrPartitionError

from aiokafka_cooperative.coordinator import CooperativeCoordinator, TopicMissingError
from aiokafka_cooperative.lease import MembershipLease


async def test_heartbeats_during_a_join_go_on_after_the_coordinator_was_unknown_for_a_while() -> None:
    """A request for committed offsets, which runs beside a join, may find that the coordinator has moved."""
    sent_requests: list[Any] = []

    async def send(node_id: int | None, request: Any) -> SimpleNamespace:
        assert node_id is not None  # as aiokafka's client asserts
        sent_requests.append(request)
        return SimpleNamespace(error_code=NoError.errno)

    coordinator: Any = SimpleNamespace(
        _heartbeat_interval_ms=1,
        _client=SimpleNamespace(send=send),
        coordinator_id=None,
        group_id="g",
        lease=MembershipLease(session_timeout_s=10, rebalance_timeout_s=30),
    )
    heartbeats = asyncio.create_task(CooperativeCoordinator._send_heartbeats(coordinator, 3, "member"))
    await asyncio.sleep(0.05)
    assert not heartbeats.done()
    coordinator.coordinator_id = 1
    async with asyncio.timeout(10):
        while not sent_requests:
            await asyncio.sleep(0.01)
    heartbeats.cancel()


async def test_a_commit_for_a_topic_that_does_not_exist_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: Any) -> None:
        raise UnknownTopicOrPartitionError

    monkeypatch.setattr(GroupCoordinator, "_do_commit_offsets", refuse)
    topic_partition, state = TopicPartition("t", 0), object()
    coordinator: Any = object.__new__(CooperativeCoordinator)
    coordinator._lost = False
    coordinator.held_assignment = SimpleNamespace(states=lambda: {topic_partition: state})
    with pytest.raises(TopicMissingError) as refused:
        await coordinator._do_commit_offsets({topic_partition: state}, {topic_partition: 3})
    assert not refused.value.retriable
