"""The watermarks that observe publishes, for HTTP destinations and Iceberg tables that ask for theirs."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import orjson
from aiokafka import ConsumerRecord, TopicPartition
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from hifi.kafka.topic_follower import PartitionFollower
from hifi.kafka.topics import Topics
from hifi.runtime.running import cancel

_INTERVAL_S: Final = 1.0


class _StatementBody(TypedDict):
    """What is read of a statement; it goes on as it is."""

    settled_until: str | None
    valid_until: str


_STATEMENT: Final = TypeAdapter(_StatementBody)


class PublishedWatermarks:
    """Follows the topic `watermarks` from when the first destination asks; before that it has no connection.

    Args:
        bootstrap: of Kafka.
        client_id: name in the broker's logs.
        topics: of the stream.
    """

    def __init__(self, bootstrap: str, client_id: str, topics: Topics) -> None:
        handlers = {TopicPartition(topics.watermarks, 0): self._take}
        self._follower = PartitionFollower(bootstrap, client_id, handlers)
        self._follow_task: asyncio.Task[None] | None = None
        self._statements: dict[str, Mapping[str, Any]] = {}

    async def start(self) -> None:
        """Do nothing yet."""

    def follow(self) -> None:
        """Begin to follow, unless it has begun; while Kafka is away what was read last holds."""
        if self._follow_task is None:
            self._follow_task = asyncio.create_task(self._follower.keep_up(_INTERVAL_S))

    async def stop(self) -> None:
        """Disconnect."""
        await cancel(self._follow_task)

    def statement(self, pipe: str, destination: str) -> Mapping[str, Any] | None:
        """The last statement of observe, as `GET /api/v1/watermarks` has it; None: nothing.

        It may be called from any thread.
        """
        return self._statements.get(f"{pipe}/{destination}")

    def settled_until(self, pipe: str, destination: str) -> str | None:
        """Every event that was acknowledged before this time (ISO 8601) has its outcome; None: it is unknown.

        It may be called from any thread.
        """
        statement = self.statement(pipe, destination)
        return statement.get("settled_until") if statement is not None else None

    def _take(self, record: ConsumerRecord) -> None:
        if record.key is None:
            return
        key = record.key.decode()
        if record.value is None:
            self._statements.pop(key, None)
            return
        statement = orjson.loads(record.value)
        _STATEMENT.validate_python(statement)
        self._statements[key] = statement
