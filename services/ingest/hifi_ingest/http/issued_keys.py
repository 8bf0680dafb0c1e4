"""The write keys that were issued, as ingest follows them, and the uses that it reports."""

import asyncio
from collections.abc import Sequence
from typing import Final

from hifi.kafka.last_uses import LastUses
from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import TopicFollower, TopicRecreated
from hifi.kafka.topics import Topics
from hifi.pipe.issued_key import IssuedKey, IssuedKeys
from hifi.record.record import Record
from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi.runtime.health import Health
from hifi.runtime.running import cancel

_CONDITION: Final = "write keys"
_CLIENT: Final = "hifi"
_INTERVAL_S: Final = 1.0
_WRITE_S: Final = 15.0

logger = log.get(__name__)


class FollowedKeys:
    """A copy of the topic `write-keys`, loaded at the start. While Kafka is away, the last copy holds.

    Once the topic was created again, its keys count only.

    Args:
        bootstrap: the stream's Kafka.
        topics: of the stream.
        health: not ready until the topic was read.
    """

    def __init__(self, bootstrap: str, topics: Topics, health: Health) -> None:
        self._keys = IssuedKeys()
        self._uses = LastUses()
        self._bootstrap = bootstrap
        self._topics = topics
        self._health = health
        self._follower = self._new_follower(self._keys)
        self._producer: Producer | None = None
        self.task: asyncio.Task[None] | None = None
        """Follows the topic."""

    async def start(self) -> None:
        """Read the topic; tries again until Kafka answers."""
        self._health.block(_CONDITION, "the write keys have not been read yet")
        await self._follower.start(
            lambda error: self._health.block(
                _CONDITION, f"the write keys cannot be read from Kafka: {error!r}"
            )
        )
        self._health.unblock(_CONDITION)
        self.task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Stop following."""
        await cancel(self.task)
        await self._follower.stop()
        if self._producer is not None:
            await self._producer.stop()

    def of_hash(self, sha256: str) -> IssuedKey | None:
        """The key with a hash, whose use is noted; None: there is none, or it has expired."""
        at_us = now_us()
        issued_key = self._keys.of_hash(sha256, at_us)
        if issued_key is not None:
            self._uses.note(issued_key.id, at_us)
        return issued_key

    def allows_origin(self, origin: bytes) -> bool:
        """Whether a page of an origin may send with any key."""
        return self._keys.allows_origin(origin.decode("latin-1"), now_us())

    async def report_uses(self) -> None:
        """Write the uses of keys, each once a minute, until cancelled."""
        await self._uses.run(self._write)

    async def _write(self, records: Sequence[Record]) -> None:
        """Write with a producer of its own, so that events never wait for it."""
        async with asyncio.timeout(_WRITE_S):
            if self._producer is None:
                producer = Producer(self._bootstrap, self._health.instance or _CLIENT)
                await producer.start()
                self._producer = producer
            await self._producer.send_and_wait(self._topics.key_uses, 0, records)

    async def _follow(self) -> None:
        while True:
            try:
                await self._follower.poll(_INTERVAL_S)
            except TopicRecreated as error:
                logger.warning("write-keys-read-anew", error=str(error))
            await self._follower.stop()
            keys = IssuedKeys()
            self._follower = self._new_follower(keys)
            await self._follower.start(
                lambda error: logger.warning(
                    "topics-unreadable", topics=[self._topics.write_keys], error=repr(error)
                )
            )
            self._keys = keys

    def _new_follower(self, keys: IssuedKeys) -> TopicFollower:
        return TopicFollower(
            self._bootstrap,
            self._health.instance or _CLIENT,
            {self._topics.write_keys: keys.take},
            rereads=False,
        )
