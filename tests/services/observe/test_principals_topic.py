"""Minutes and alarms go on while the principals cannot be read: at the start, and later."""

import asyncio

import aiohttp
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from tests.support.observe.stream_double import Stream, new_stream
from tests.support.observe_principal import (
    OPERATOR,
    VIEWER,
    as_principal,
    create_principals,
    principal,
    write,
)

from hifi.control.principals.principal import Role, revocation
from hifi.kafka.producer import Producer
from hifi.kafka.topics import principal_topics
from hifi.runtime.clock import now_us
from hifi_observe.kafka import principals_copy
from hifi_observe.observer import Observer

WITHIN_S = 90
SILENCE = {"reason": "test", "seconds": 60}


async def status(url: str, headers: dict[str, str], *, change: bool = False) -> int:
    async with aiohttp.ClientSession(headers=headers) as session:
        if change:
            async with session.post(url + "/api/v1/silences", json=SILENCE) as answer:
                return answer.status
        async with session.get(url + "/api/v1/pipes") as answer:
            return answer.status


async def until_status(expected: int, url: str, headers: dict[str, str], *, change: bool = False) -> None:
    last_status = 0
    async with asyncio.timeout(WITHIN_S):
        while (last_status := await status(url, headers, change=change)) != expected:
            await asyncio.sleep(0.1)
    assert last_status == expected


async def minute_with_loss_is_closed_and_raises_an_alarm(
    stream: Stream, observer: Observer, minute: int
) -> None:
    await stream.events(0, minute, 5, lose={"normalized": [1]})
    await stream.commit(0)
    async with asyncio.timeout(WITHIN_S):
        while (observer.stream.store.minute("flights", minute) or {}).get("lost") != 1:
            await asyncio.sleep(0.1)
        while not any(alarm.kind == "loss" for alarm in observer.judge.notifier.notified):
            await asyncio.sleep(0.1)


async def delete_principals(stream: Stream) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=stream.kafka)
    await admin.start()
    try:
        await admin.delete_topics([principal_topics(stream.topics.stream).principals])
    finally:
        await admin.close()


@pytest.mark.parametrize("settings", [{}, {"control_kafka": "127.0.0.1:9"}], ids=["no topic", "no Kafka"])
async def test_with_principals_unreadable_at_the_start_minutes_and_alarms_go_on_and_nobody_is_let_in(
    kafka: str, settings: dict[str, str]
) -> None:
    minute = now_us() // 60_000_000 - 3
    async with new_stream(kafka) as stream:
        await delete_principals(stream)
        async with stream.observing(wait_for_principals=False, **settings) as (observer, url):
            await minute_with_loss_is_closed_and_raises_an_alarm(stream, observer, minute)
            assert await status(url, VIEWER) == 503
            assert await status(url, OPERATOR, change=True) == 503
            async with aiohttp.ClientSession() as session, session.get(url + "/sign-in") as page:
                assert page.status == 200
            if not settings:
                await create_principals(kafka, stream.topics.stream)
                await until_status(200, url, VIEWER)


async def test_while_the_topic_is_away_those_read_last_read_on_and_change_nothing(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(principals_copy, "FRESH_S", 1.0)
    monkeypatch.setattr(principals_copy, "_INTERVAL_S", 0.2)
    minute = now_us() // 60_000_000 - 3
    async with new_stream(kafka) as stream, stream.observing() as (observer, url):
        await until_status(200, url, OPERATOR, change=True)
        await delete_principals(stream)
        await until_status(503, url, OPERATOR, change=True)
        assert await status(url, VIEWER) == 200
        await minute_with_loss_is_closed_and_raises_an_alarm(stream, observer, minute)
        await create_principals(kafka, stream.topics.stream)
        await until_status(200, url, OPERATOR, change=True)


async def test_what_is_created_and_revoked_counts_within_seconds(kafka: str) -> None:
    async with new_stream(kafka) as stream, stream.observing() as (_, url):
        topics = principal_topics(stream.topics.stream)
        assert await status(url, as_principal("bob")) == 401
        await write(kafka, topics, principal("bob", Role.VIEWER))
        async with asyncio.timeout(10):
            await until_status(200, url, as_principal("bob"))
        producer = Producer(kafka, "test")
        await producer.start()
        await producer.send_and_wait(topics.principals, 0, [revocation("bob")])
        await producer.stop()
        async with asyncio.timeout(10):
            await until_status(401, url, as_principal("bob"))
