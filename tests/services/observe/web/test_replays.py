"""Orders to replay: one at a time, bounded, and a failure leaves nothing behind."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hifi.dead_letters.letter import DeadLetter
from hifi.errors import Misconfigured, Retryable
from hifi.topics import Topics
from hifi_observe.settings import ObserveSettings
from hifi_observe.web import replays
from hifi_observe.web.replays import Order, Replays

sys.path.insert(0, str(Path(__file__).parents[1]))
from stream_double import new_stream


async def test_without_kafka_an_order_fails_in_time_and_the_next_may_come() -> None:
    some = Replays(ObserveSettings(kafka="127.0.0.1:9", stream="s", instance="i"), Topics("s"))
    for _ in range(2):
        with pytest.raises(Retryable, match="0 were replayed"):
            await asyncio.wait_for(some.carry_out("flights", Order()), 30)
        assert not some.busy
    with pytest.raises(Misconfigured):
        await some.carry_out("flights", Order(ids=["3-4"]))
    assert not some.busy


async def test_a_second_order_is_told_to_wait_and_one_that_takes_too_long_ends(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = asyncio.Event()

    async def endless(*_: Any) -> AsyncIterator[DeadLetter]:
        reading.set()
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr(replays, "letters", endless)
    monkeypatch.setattr(replays, "_WITHIN_S", 3)
    path = "/api/v1/pipes/flights/dead/replay"
    async with (
        new_stream(kafka) as stream,
        stream.observing(observe_token="secret") as (_, url),
        aiohttp.ClientSession(headers={"authorization": "Bearer secret"}) as session,
    ):

        async def order() -> int:
            async with session.post(url + path, json={}) as answer:
                return answer.status

        first = asyncio.create_task(order())
        await asyncio.wait_for(reading.wait(), 30)
        assert await order() == 409
        assert await first == 503
        assert await order() == 503
