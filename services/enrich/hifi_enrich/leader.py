"""Which instance runs the query: the one that a group assigns the only partition of `<stream>.enrich-leader` to."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any, Final

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from hifi import log
from hifi.kafka.clients import group_consumer
from hifi.settings import ServiceSettings
from hifi.topics import Topics

_NODE: Final = "enrich-leader"
_AGAIN_S: Final = 1.0
_REVOKED_S: Final = 20.0

logger = log.get(__name__)


class Leadership:
    """Takes part in the election until it is stopped."""

    def __init__(self, settings: ServiceSettings, topics: Topics) -> None:
        self._settings = settings
        self._topics = topics
        self._task: asyncio.Task[None] | None = None
        self.known = asyncio.Event()
        """The group has decided at least once."""
        self.held = asyncio.Event()
        """This instance leads."""
        self.lost = asyncio.Event()
        """It does not lead (any more): stop at once, commit nothing."""
        self.lost.set()
        self.idle = asyncio.Event()
        """Set by who leads whenever nothing of it runs; others wait for that on an orderly hand-over."""
        self.idle.set()

    def start(self) -> None:
        """Begin to take part."""
        self._task = asyncio.create_task(self._take_part())

    async def stop(self) -> None:
        """Leave the group, so that another takes over at once."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def gain(self) -> None:
        """The group chose this instance."""
        self.lost.clear()
        self.held.set()
        logger.info("leadership-gained")

    def lose(self) -> None:
        """The group chose another, or put this one out."""
        if self.held.is_set():
            logger.warning("leadership-lost")
        self.held.clear()
        self.lost.set()

    async def _take_part(self) -> None:
        while True:
            try:
                await self._membership()
            except (KafkaError, OSError) as error:
                logger.warning("election-failed", error=repr(error))
            self.lose()
            await asyncio.sleep(_AGAIN_S)

    async def _membership(self) -> None:
        consumer = group_consumer(self._settings, self._topics.group(_NODE))
        consumer.subscribe([self._topics.enrich_leader], listener=_Listener(self))
        try:
            await consumer.start()
            while True:
                await consumer.getmany(timeout_ms=1000)
        finally:
            with contextlib.suppress(KafkaError, OSError, TimeoutError):
                await asyncio.wait_for(consumer.stop(), 5)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership

    async def on_partitions_assigned(self, added: Iterable[TopicPartition]) -> None:
        if list(added):
            self._leadership.gain()
        self._leadership.known.set()

    async def on_partitions_revoked(self, taken: Iterable[TopicPartition]) -> None:
        if list(taken):
            self._leadership.lose()
            with contextlib.suppress(
                TimeoutError
            ):  # the next leader must not begin before this one has ended
                await asyncio.wait_for(self._leadership.idle.wait(), _REVOKED_S)

    async def on_partitions_lost(self, lost: Any) -> None:
        if list(lost):
            self._leadership.lose()
