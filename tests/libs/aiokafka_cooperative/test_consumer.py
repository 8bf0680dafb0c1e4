"""Arguments that the consumer refuses, and its state before it starts."""

import pytest

from aiokafka_cooperative import CooperativeConsumer


async def test_before_it_starts_it_is_nobody() -> None:
    consumer = CooperativeConsumer("some.topic", bootstrap_servers="127.0.0.1:1", group_id="some.group")
    assert consumer.membership == (-1, "")
    assert consumer.last_heartbeat_monotonic_s < 0
    with pytest.raises(ValueError, match="which offsets"):
        await consumer.commit()
    await consumer.stop()


async def test_what_it_cannot_do_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="group_id"):
        CooperativeConsumer("some.topic")
    with pytest.raises(ValueError, match="enable_auto_commit"):
        CooperativeConsumer("some.topic", group_id="some.group", enable_auto_commit=True)
