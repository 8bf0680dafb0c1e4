"""The watermarks that observe publishes, for tables whose snapshots state them."""

import asyncio
from typing import Final

import orjson
from aiokafka import ConsumerRecord, TopicPartition

from hifi.kafka.topic_follower import PartitionFollower
from hifi.kafka.topics import Topics
from hifi.runtime.running import cancel

_INTERVAL_S: Final = 1.0


class PublishedWatermarks:
    """Follows the topic `watermarks` from when the first table asks; before that it has no connection.

    Args:
        bootstrap: of Kafka.
        client_id: name in the broker's logs.
        topics: of the stream.
    """

    def __init__(self, bootstrap: str, client_id: str, topics: Topics) -> None:
        takes = {TopicPartition(topics.watermarks, 0): self._take}
        self._follower = PartitionFollower(bootstrap, client_id, takes)
        self._following: asyncio.Task[None] | None = None
        self._settled_until: dict[str, str | None] = {}

    async def start(self) -> None:
        """Do nothing yet."""

    def follow(self) -> None:
        """Begin to follow, unless it has begun; while Kafka is away what was read last holds."""
        if self._following is None:
            self._following = asyncio.create_task(self._follower.keep_up(_INTERVAL_S))

    async def stop(self) -> None:
        """Disconnect."""
        await cancel(self._following)

    def settled_until(self, pipe: str, destination: str) -> str | None:
        """Every event that was acknowledged before this time (ISO 8601) has its outcome; None: it is unknown.

        It may be called from any thread.
        """
        return self._settled_until.get(f"{pipe}/{destination}")

    def _take(self, record: ConsumerRecord) -> None:
        if record.key is None:
            return
        key = record.key.decode()
        if record.value is None:
            self._settled_until.pop(key, None)
        else:
            self._settled_until[key] = orjson.loads(record.value)["settled_until"]
