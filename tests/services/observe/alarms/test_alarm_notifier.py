"""The notifier of alarms, without Kafka."""

import asyncio
from typing import cast

from hifi_observe.alarms.alarm import Key
from hifi_observe.alarms.alarm_notifier import AlarmNotifier
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.settings import ObserveSettings

PARKED: Key = ("parked", "flights", "crm")


class AwaitedPublisher:
    """A publisher whose write ends when the test says so."""

    def __init__(self) -> None:
        self.is_writing = asyncio.Event()
        self.is_written = asyncio.Event()

    async def alarm(self, _identity: str, _value: object) -> None:
        self.is_writing.set()
        await self.is_written.wait()


async def test_a_stop_at_the_moment_when_an_alarm_has_been_written_is_not_lost() -> None:
    publisher = AwaitedPublisher()
    notifier = AlarmNotifier(ObserveSettings())

    async def raise_alarms() -> None:
        await notifier.step({PARKED: "since yesterday"}, cast(Publisher, publisher))
        await asyncio.Event().wait()

    task = asyncio.create_task(raise_alarms())
    await publisher.is_writing.wait()
    publisher.is_written.set()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=60)
    assert task.cancelled()
