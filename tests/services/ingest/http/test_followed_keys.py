"""The copy of the issued write keys that ingest has, with a follower of the test."""

import asyncio
import hashlib
from typing import Any

import pytest

from hifi.kafka.topic_follower import TopicRecreated
from hifi.kafka.topics import Topics
from hifi.pipe.issued_key import IssuedKey, issued_key
from hifi.runtime.health import Health
from hifi_ingest.http import issued_keys
from hifi_ingest.http.issued_keys import FollowedKeys

TOPICS = Topics("s")


def issued(key: str) -> IssuedKey:
    return issued_key(key, "flights", origins=(), expires_us=None, author="ann", at_us=1)


OLD_KEY, NEW_KEY = issued("o" * 40), issued("n" * 40)


class ReplacedTopic:
    """A topic that is created again while it is followed."""

    def __init__(self) -> None:
        self.keys = [OLD_KEY]
        self.is_recreated = asyncio.Event()
        self.may_be_read = asyncio.Event()
        self.may_be_read.set()
        self.stopped = 0

    def follower(self, *arguments: Any, rereads: bool = True) -> "FakeFollower":
        assert not rereads, "it grants rights"
        return FakeFollower(self, arguments[-1][TOPICS.write_keys])


class FakeFollower:
    """Reads the topic as it is now."""

    def __init__(self, topic: ReplacedTopic, take: Any) -> None:
        self.topic = topic
        self.take = take

    async def start(self, _: Any) -> None:
        await self.topic.may_be_read.wait()
        for offset, key in enumerate(self.topic.keys):
            self.take(key.id.encode(), key.record().value, offset)

    async def poll(self, _: float) -> None:
        await self.topic.is_recreated.wait()
        self.topic.is_recreated.clear()
        raise TopicRecreated("it was deleted and created again")

    async def stop(self) -> None:
        self.topic.stopped += 1


async def test_keys_of_a_topic_that_was_created_again_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = ReplacedTopic()
    monkeypatch.setattr(issued_keys, "TopicFollower", topic.follower)
    keys = FollowedKeys("nowhere:1", TOPICS, Health("ingest", "test"))
    await keys.start()
    assert keys.of_hash(OLD_KEY.sha256) == OLD_KEY
    topic.keys = [NEW_KEY]
    topic.may_be_read.clear()
    topic.is_recreated.set()
    async with asyncio.timeout(10):
        while not topic.stopped:
            await asyncio.sleep(0)
    assert keys.of_hash(OLD_KEY.sha256) == OLD_KEY, "what was read last holds until it can be read"
    topic.may_be_read.set()
    async with asyncio.timeout(10):
        while keys.of_hash(NEW_KEY.sha256) is None:
            await asyncio.sleep(0)
    assert keys.of_hash(OLD_KEY.sha256) is None
    assert keys.of_hash(hashlib.sha256(b"unknown").hexdigest()) is None
    await keys.stop()
