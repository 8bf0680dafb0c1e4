"""Parts of the coordinator that need no Kafka."""

import asyncio
from types import SimpleNamespace
from typing import Any

from aiokafka.errors import NoError

from aiokafka_cooperative.coordinator import CooperativeCoordinator
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
