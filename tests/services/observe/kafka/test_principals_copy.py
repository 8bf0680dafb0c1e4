"""The copy of the principals goes on after every failure, keeps what was read last, and warns meanwhile."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from aiokafka.errors import KafkaConnectionError, UnknownTopicOrPartitionError
from tests.support.observe_principal import principal

from hifi.control.principals.principal import Role
from hifi.runtime.health import Health
from hifi_observe.kafka import principals_copy
from hifi_observe.kafka.principals_copy import TopicCopy

ANN, BOB = principal("ann", Role.VIEWER), principal("bob", Role.VIEWER)


class Follower:
    """Reads the records of the class, or fails with its failures."""

    failures: ClassVar[list[BaseException]] = []
    records: ClassVar[list[tuple[bytes, bytes | None]]] = []

    def __init__(self, _: str, __: str, handlers: dict[str, Any]) -> None:
        (self._take,) = handlers.values()
        self._read = 0

    async def start(self, on_failure: Callable[[Exception], None]) -> None:
        del on_failure
        await self.catch_up()

    async def catch_up(self) -> None:
        if Follower.failures:
            raise Follower.failures[0]
        for key, value in Follower.records[self._read :]:
            self._take(key, value, 0)
        self._read = len(Follower.records)

    async def stop(self) -> None:
        if Follower.failures:
            raise Follower.failures[0]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    "failure",
    [
        KafkaConnectionError(),
        UnknownTopicOrPartitionError(),
        TimeoutError(),
        OSError(),
        RuntimeError("a bug"),
    ],
    ids=repr,
)
async def test_it_goes_on_after_each_failure(failure: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(principals_copy, "TopicFollower", Follower)
    monkeypatch.setattr(principals_copy, "_INTERVAL_S", 0.01)
    monkeypatch.setattr(principals_copy, "FRESH_S", 0.2)
    health = Health("observe", "i")
    topic_copy = TopicCopy("127.0.0.1:1", "i", "principals", health)
    Follower.failures, Follower.records = [failure], [(b"ann", ANN.record().value)]
    task = asyncio.create_task(topic_copy.run())
    try:
        await until(lambda: "nobody can sign in" in health.warnings.get("principals", ""))
        assert (topic_copy.read, topic_copy.fresh, health.ready) == (False, False, True)
        Follower.failures = []
        await until(lambda: topic_copy.fresh and "ann" in topic_copy.principals.by_name)
        assert health.warnings == {}
        Follower.failures = [failure]
        await until(lambda: topic_copy.read and not topic_copy.fresh)
        assert "those read last hold" in health.warnings["principals"]
        assert list(topic_copy.principals.by_name) == ["ann"]
        # The topic is another one afterwards: what it does not have is gone.
        Follower.failures, Follower.records = [], [(b"bob", BOB.record().value)]
        await until(lambda: topic_copy.fresh and list(topic_copy.principals.by_name) == ["bob"])
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
