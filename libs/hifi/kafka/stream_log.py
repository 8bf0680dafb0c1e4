"""The identity of a stream's log: the id that Kafka gave the topic `raw` when it was created (KIP-516).

Offsets name events only together with it: those of another colour, of a stream made anew, of one with another number
of partitions, and of one restored from a backup all begin at 0. See docs/decisions/log-identity.md.
"""

import asyncio
import math
from typing import Final

from aiokafka.errors import KafkaError

from hifi.kafka.assigned_partition import AssignedPartition
from hifi.kafka.topic_identity import topic_identity
from hifi.kafka.topics import Topics
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s, wait_at_most
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi.runtime.running import cancel

_CONDITION: Final = "log"
_INTERVAL_S: Final = 2.0
_RETRY_S: Final = 0.5
_NO_IDENTITY: Final = (
    "the stream's Kafka is older than 3.1 and gives topics no id, so hifi cannot tell this stream's events from those "
    "of another one: upgrade it"
)

logger = log.get(__name__)


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
        self._anew = 0
        """How often the identity was forgotten."""
        self._asked_s = -math.inf
        self._asking = asyncio.Lock()
        self._reading_task: asyncio.Task[None] | None = None
        health.block(_CONDITION, "the identity of the stream's log has not been read yet")

    async def start(self) -> None:
        """Wait until Kafka has said the id of the topic `raw`."""
        while self._identity is None:
            try:
                await self._ask()
            except (KafkaError, OSError) as error:
                self._health.block(_CONDITION, f"the id of {self._raw} cannot be read from Kafka: {error!r}")
                await asyncio.sleep(_INTERVAL_S)
        self._health.unblock(_CONDITION)

    async def stop(self) -> None:
        """Stop reading."""
        await cancel(self._reading_task)

    def read_anew(self) -> None:
        """Forget the identity and read it again: events came whose offsets in `raw` begin anew."""
        self._identity = None
        self._anew += 1
        if self._reading_task is None or self._reading_task.done():
            self._reading_task = asyncio.create_task(self.start())

    async def identity_at(self, assigned: AssignedPartition) -> str:
        """Ask for the identity again at an assignment: Kafka deletes committed offsets together with their topic.

        Where the topic was created again, `identity` is the new one as soon as this returns. Partitions that are
        assigned together share a request.

        Returns:
            32 hex digits; empty: the brokers give topics no id.

        Raises:
            Fenced: the partition was revoked before Kafka answered.
        """
        while True:
            try:
                return await self._ask()
            except (KafkaError, OSError) as error:
                logger.warning(
                    "topic-not-identified", topic=self._raw, partition=assigned.partition, error=repr(error)
                )
            if await wait_at_most(assigned.revoked, _RETRY_S):
                assigned.abandon()
                assigned.ensure_active()

    async def _ask(self) -> str:
        """The identity, from a request that was sent after this was called."""
        called_s = monotonic_s()
        async with self._asking:
            while self._identity is None or self._asked_s < called_s:
                asked_s, anew = monotonic_s(), self._anew
                identity = (await topic_identity(self._bootstrap, self._raw)).topic
                if self._identity not in (None, identity):
                    logger.warning("topic-created-again", topic=self._raw, id=identity)
                if anew == self._anew:  # else it may be that of the topic before
                    self._identity, self._asked_s = identity, asked_s
            return self._identity

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
