"""An aiokafka release with other private parts is refused."""

from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.group_coordinator import GroupCoordinator

from aiokafka_cooperative import CooperativeConsumer, IncompatibleAiokafkaError, check_compatibility


async def test_the_installed_aiokafka_is_the_one_that_it_is_built_on() -> None:
    check_compatibility()


async def test_an_aiokafka_of_another_shape_is_refused_with_the_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def start(self: Any) -> None:
        self._coordinator = self._make_coordinator_in_some_new_way()

    monkeypatch.setattr(AIOKafkaConsumer, "start", start)
    monkeypatch.delattr(GroupCoordinator, "_do_rejoin_group")
    with pytest.raises(
        IncompatibleAiokafkaError, match=r"start has no GroupCoordinator.*_do_rejoin_group has no subscr"
    ):
        CooperativeConsumer("some.topic", group_id="some.group")
