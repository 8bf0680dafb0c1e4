"""What both colours share is as safe as the control plane's Kafka allows."""

from typing import Any

import pytest

from hifi.kafka.topics import DeclaredTopics
from hifi_infra.containers import colours_setup
from hifi_infra.containers.colours_setup import ColoursSetupSettings, set_up


@pytest.mark.parametrize(("brokers", "copies"), [(1, 1), (3, 3), (5, 3)])
async def test_topics_have_as_many_copies_as_those_of_a_stream_on_these_brokers(
    monkeypatch: pytest.MonkeyPatch, brokers: int, copies: int
) -> None:
    created: dict[str, dict[str, Any]] = {}

    async def create_topics(_: str, topics: DeclaredTopics, **options: Any) -> None:
        """Keep the options instead of asking Kafka."""
        created[topics.prefix] = options

    async def wait_for_brokers(*_: object) -> int:
        return brokers

    monkeypatch.setattr(colours_setup, "create_topics", create_topics)
    monkeypatch.setattr(colours_setup, "wait_for_brokers", wait_for_brokers)
    await set_up(ColoursSetupSettings.model_validate({"stream": "shop", "create_topics": False}))
    options = {"partitions": 1, "replication": copies, "create": False}
    assert created == dict.fromkeys(("shop-control", "shop-blue", "shop-green", "shop"), options)
