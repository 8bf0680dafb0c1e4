"""The identity of a stream's log: the id that Kafka gave the topic `raw` when it was created (KIP-516).

Offsets name events only together with it: those of another colour, of a stream made anew, of one with another number
of partitions, and of one restored from a backup all begin at 0. See docs/decisions/log-identity.md.
"""

import asyncio
from typing import Final

from aiokafka.errors import KafkaError

from hifi.kafka.topic_identity import topic_identity
from hifi.kafka.topics import Topics
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi.runtime.running import cancel

_CONDITION: Final = "log"
_INTERVAL_S: Final = 2.0
_NO_IDENTITY: Final = (
    "the stream's Kafka is older than 3.1 and gives topics no id, so hifi cannot tell this stream's events from those "
    "of another one: upgrade it"
)


class StreamLog:
    """Learns the identity of a stream's log when a service starts, and again when its topic was created again."""

    def __init__(self, bootstrap: str, topics: Topics, health: Health) -> None:
        """The service is not ready before `start` has returned.

        Args:
            bootstrap: `HOST:PORT,…`.
            topics: of the stream.
            health: of the service.
        """
        self._bootstrap = bootstrap
        self._raw = topics.raw
        self._health = health
        self._identity: str | None = None
        self._reading_task: asyncio.Task[None] | None = None
        health.block(_CONDITION, "the identity of the stream's log has not been read yet")

    async def start(self) -> None:
        """Wait until Kafka has said the id of the topic `raw`."""
        while True:
            try:
                self._identity = (await topic_identity(self._bootstrap, self._raw)).topic
            except (KafkaError, OSError) as error:
                self._health.block(_CONDITION, f"the id of {self._raw} cannot be read from Kafka: {error!r}")
                await asyncio.sleep(_INTERVAL_S)
            else:
                self._health.unblock(_CONDITION)
                return

    async def stop(self) -> None:
        """Stop reading."""
        await cancel(self._reading_task)

    def read_anew(self) -> None:
        """Forget the identity and read it again: events came whose offsets in `raw` begin anew."""
        self._identity = None
        if self._reading_task is None or self._reading_task.done():
            self._reading_task = asyncio.create_task(self.start())

    def identity(self) -> str:
        """The identity, 32 hex digits.

        Raises:
            Misconfigured: the brokers give topics no id, or it is being read.
        """
        if self._identity is None:
            raise Misconfigured("the identity of the stream's log is being read from Kafka")
        if not self._identity:
            raise Misconfigured(_NO_IDENTITY)
        return self._identity
