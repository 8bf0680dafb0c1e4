"""An instance that cannot take part in the election does not lead."""

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from hifi.kafka import leader_election
from hifi.kafka.leader_election import LeaderElection
from hifi.kafka.settings import ServiceSettings


async def test_an_unexpected_error_ends_the_leadership_and_not_the_election(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    election = LeaderElection(ServiceSettings(kafka="nowhere:1"), "group", "topic")
    has_led, is_member_again = asyncio.Event(), asyncio.Event()

    async def be_member() -> None:
        if has_led.is_set():
            is_member_again.set()
            await asyncio.Event().wait()
        election.gain()
        has_led.set()
        raise ValueError("a defect of the client")

    monkeypatch.setattr(leader_election, "_RETRY_S", 0)
    monkeypatch.setattr(election, "_be_member", be_member)
    election.start()
    await asyncio.wait_for(is_member_again.wait(), 10)
    assert not election.leading.is_set()
    await election.stop()


async def test_an_instance_whose_membership_fails_does_not_lead_while_it_leaves_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    election = LeaderElection(ServiceSettings(kafka="nowhere:1"), "group", "topic")
    led_while_leaving: list[bool] = []

    class FailingMember:
        def subscribe(self, *_: Any, **__: Any) -> None:
            election.gain()

        async def start(self) -> None:
            raise KafkaConnectionError("away")

        async def stop(self) -> None:
            led_while_leaving.append(election.leading.is_set())

    monkeypatch.setattr(leader_election, "group_consumer", lambda *_, **__: FailingMember())
    with pytest.raises(KafkaConnectionError):
        await election._be_member()
    assert led_while_leaving == [False]
