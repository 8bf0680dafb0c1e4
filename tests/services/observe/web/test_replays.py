"""Dead-letter replays run one at a time, within a time limit, and a failed one does not block the next."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests.support.observe.stream_double import new_stream
from tests.support.observe_principal import OPERATOR

from hifi.delivery.dead_letters.letter import DeadLetter
from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.pipe.registry import PipeRegistry
from hifi.record.fields import packed
from hifi.record.headers import ACCEPTED, MINUTE, PIPE, REVISION, REVISION_OFFSET, SEQ, Headers
from hifi.record.identity import seq_text
from hifi.runtime.errors import Misconfigured, Rejected, Retryable
from hifi.runtime.health import Health
from hifi_observe.settings import ObserveSettings
from hifi_observe.web import replays
from hifi_observe.web.replays import ReplayRequest, ReplayResult, Replays


def letter_headers(sequence: int) -> Headers:
    numbers = dict.fromkeys((REVISION, REVISION_OFFSET, ACCEPTED, MINUTE), b"1")
    return packed({PIPE: b"p", **numbers, SEQ: seq_text(1, sequence)})


async def test_without_kafka_a_replay_fails_in_time_and_does_not_block_the_next() -> None:
    settings = ObserveSettings(kafka="127.0.0.1:9", stream="s", instance="i")
    runner = Replays(settings, Topics("s"), PipeRegistry(settings.kafka, Topics("s"), Health("observe", "i")))
    for _ in range(2):
        with pytest.raises(Retryable, match="0 were replayed"):
            await asyncio.wait_for(runner.run("flights", ReplayRequest()), 30)
        assert not runner.busy
    with pytest.raises(Misconfigured):
        await runner.run("flights", ReplayRequest(ids=["3-4"]))
    assert not runner.busy


async def test_each_letter_of_a_replay_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose work had been replayed with another letter counts as replayed before."""

    async def first_of_each_work(*arguments: Any) -> AsyncIterator[tuple[DeadLetter, str]]:
        chunk, works = arguments[2], arguments[5]
        for letter in chunk[:-1]:
            yield letter, "" if letter.work in works else "s.normalized"
            works.add(letter.work)
        raise Rejected("not-replayable", "the last one has no data")

    monkeypatch.setattr(replays, "replay", first_of_each_work)
    settings = ObserveSettings(kafka="127.0.0.1:9", stream="s", instance="i")
    runner = Replays(settings, Topics("s"), PipeRegistry(settings.kafka, Topics("s"), Health("observe", "i")))
    totals, works, producer = ReplayResult(), set[bytes](), Producer(settings.kafka, "test")
    chunk = [DeadLetter(0, offset, 0, None, None, letter_headers(offset % 2)) for offset in range(4)]
    for _ in range(2):
        await runner._replay_chunk(producer, chunk, works, totals)
    assert (totals.replayed, totals.already, totals.refused) == (2, 4, 2)
    assert totals.why == "the last one has no data"


async def test_a_concurrent_replay_gets_409_and_one_over_the_time_limit_gets_503(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_started = asyncio.Event()
    letter: Any = None

    async def endless(*_: Any) -> AsyncIterator[DeadLetter]:
        read_started.set()
        await asyncio.Event().wait()
        yield letter

    monkeypatch.setattr(replays, "letters", endless)
    monkeypatch.setattr(replays, "_TIMEOUT_S", 3)
    path = "/api/v1/pipes/flights/dead/replay"
    async with (
        new_stream(kafka) as stream,
        stream.observing() as (_, url),
        aiohttp.ClientSession(headers=OPERATOR) as session,
    ):

        async def post_replay() -> int:
            async with session.post(url + path, json={}) as response:
                return response.status

        first_replay = asyncio.create_task(post_replay())
        await asyncio.wait_for(read_started.wait(), 30)
        assert await post_replay() == 409
        assert await first_replay == 503
        assert await post_replay() == 503
