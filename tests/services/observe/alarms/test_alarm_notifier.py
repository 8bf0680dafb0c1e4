"""The notifier of alarms, without Kafka."""

import asyncio
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.support.observe.owner_webhook import secret_file

from hifi.runtime.clock import now_us
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


class TopicDouble:
    """A publisher that keeps the records of the topic `alarms`."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes]] = []

    async def alarm(self, identity: str, value: object) -> None:
        self.records.append((identity.encode(), orjson.dumps(value)))


def silence(notifier: AlarmNotifier, seconds: float) -> None:
    """Silence all alarms for a time from now on; 0 ends it."""
    body = {"id": "s", "reason": "known", "from_us": now_us(), "until_us": now_us() + int(seconds * 1e6)}
    notifier.read(b"silence/s", orjson.dumps(body))


def states(notifier: AlarmNotifier) -> list[str | None]:
    """What the active alarms are silenced by, as the owner's notices and the overview see it."""
    silenced = [alarm.silenced for alarm, _ in notifier.told]
    assert [alarm.silenced for alarm in notifier.notified if alarm.ended_us is None] == silenced
    return silenced


async def test_nothing_is_posted_of_a_silenced_alarm_and_its_start_is_posted_again_after_the_silence(
    tmp_path: Path,
) -> None:
    posted: list[tuple[str, dict[str, Any]]] = []

    async def take(request: web.Request) -> web.Response:
        posted.append((request.headers["webhook-id"], await request.json()))
        return web.Response()

    app = web.Application()
    app.router.add_post("/", take)
    async with TestServer(app) as server:
        settings = ObserveSettings(
            observe_webhook=str(server.make_url("/")), observe_webhook_secret_file=secret_file(tmp_path)
        )
        notifier = AlarmNotifier(settings)
        task = asyncio.create_task(notifier.post())
        parked = {PARKED: "since yesterday"}
        await notifier.step(parked, None)
        for _ in range(2):
            silence(notifier, 3600)
            await notifier.step(parked, None)
            assert states(notifier) == ["known"]
            silence(notifier, 0)
            await notifier.step(parked, None)
            assert states(notifier) == [None]
        silence(notifier, 3600)
        await notifier.step({}, None)
        silence(notifier, 0)
        await notifier.step(parked, None)
        await notifier.step({}, None)
        async with asyncio.timeout(60):
            while len(posted) < 5:
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})
    types = [body["type"].removeprefix("hifi.alarm.") for _, body in posted]
    assert types == ["started", "started", "started", "started", "ended"]
    assert len({body["data"]["id"] for _, body in posted}) == 2
    assert len({webhook_id for webhook_id, _ in posted}) == 5


async def test_a_silence_of_an_active_alarm_is_in_the_topic_and_holds_on_the_next_instance() -> None:
    topic, first = TopicDouble(), AlarmNotifier(ObserveSettings())
    publisher = cast(Publisher, topic)
    await first.step({PARKED: "since yesterday"}, publisher)
    silence(first, 3600)
    await first.step({PARKED: "since yesterday"}, publisher)
    second = AlarmNotifier(ObserveSettings())
    for key, value in topic.records:
        second.read(key, value)
    silence(second, 3600)
    second.restore()
    assert states(second) == ["known"]
    await second.step({PARKED: "since yesterday"}, publisher)
    assert len(topic.records) == 2
    silence(second, 0)
    await second.step({PARKED: "since yesterday"}, publisher)
    assert states(second) == [None]


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


@pytest.mark.parametrize(
    ("key", "body"),
    [
        (b"silence/s", {"id": "s", "reason": "", "from_us": 0, "until_us": "tomorrow"}),
        (b"silence/s", {"id": "s"}),
        (b"silence/s", 5),
        (b"x", {"id": "x"}),
        (b"x", {"id": "x", "kind": "lag", "pipe": "p", "subject": "", "cause": "", "started_us": 10**18}),
        (b"x", []),
    ],
)
def test_a_record_that_is_no_alarm_and_no_silence_is_refused(key: bytes, body: object) -> None:
    notifier = AlarmNotifier(ObserveSettings())
    with pytest.raises(ValueError, match=r".+"):
        notifier.read(key, orjson.dumps(body))
    assert not notifier.alarms.silences
    assert notifier.notified == []
    notifier.restore()
