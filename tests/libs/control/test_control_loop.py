"""An actor of the control plane goes on after an error that nobody expects, and ends where going on is wrong."""

import asyncio

import pytest

from hifi.control.control_loop import act_until_stopped
from hifi.kafka.topic_follower import TopicRecreated
from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.lifetime import Lifetime


class EndlessLifetime:
    """Stands in for that of a service, and does not sleep."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()

    async def sleep(self, _: float) -> None:
        await asyncio.sleep(0)


@pytest.mark.parametrize("fatal_error", [Misconfigured("the secret is wrong"), TopicRecreated("it is new")])
async def test_only_what_is_fatal_ends_the_loop(fatal_error: Exception) -> None:
    problems = [TypeError("a record"), Retryable("Kafka is away"), KeyError("x"), fatal_error]
    lifetime: Lifetime = EndlessLifetime()  # type: ignore[assignment]

    async def act() -> float:
        raise problems.pop(0)

    with pytest.raises(type(fatal_error)):
        await act_until_stopped(
            lifetime, act, waiting_event="waits", retry_s=1, fatal_errors=(Misconfigured,)
        )
    assert problems == []
