"""Elects the instance that runs a query or reads a source: the one that gets the only partition of a topic."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any, Final

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.clients import group_consumer
from hifi.kafka.settings import ServiceSettings
from hifi.runtime import log
from hifi.runtime.clock import wait_at_most

_RETRY_S: Final = 1.0
_HAND_OVER_TIMEOUT_S: Final = 20.0
_HEARTBEAT_MS: Final = 300
"""A standby learns with its next heartbeat that the leader has left or was removed."""

logger = log.get(__name__)


class LeaderElection:
    """Takes part in the election until it is stopped."""

    def __init__(self, settings: ServiceSettings, group: str, topic: str) -> None:
        """Take no part yet; `start` joins.

        Args:
            settings: of the service.
            group: consumer group of its instances, only for the election.
            topic: with one partition.
        """
        self._settings = settings
        self._group = group
        self._topic = topic
        self._task: asyncio.Task[None] | None = None
        self.decided = asyncio.Event()
        """Set after the first decision of the group."""
        self.leading = asyncio.Event()
        """Set while this instance leads."""
        self.not_leading = asyncio.Event()
        """Set while it does not: stop the query or the reader at once, commit nothing."""
        self.not_leading.set()
        self.query_stopped = asyncio.Event()
        """Set by the leader while no query or reader runs. An orderly hand-over waits for it."""
        self.query_stopped.set()

    def start(self) -> None:
        """Join the group."""
        self._task = asyncio.create_task(self._take_part())

    async def stop(self) -> None:
        """Leave the group, so that another instance takes over at once."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def gain(self) -> None:
        """Called when the group has chosen this instance."""
        self.not_leading.clear()
        self.leading.set()
        logger.info("leadership-gained")

    def lose(self) -> None:
        """Called when the group has chosen another instance or removed this one."""
        if self.leading.is_set():
            logger.warning("leadership-lost")
        self.leading.clear()
        self.not_leading.set()

    async def _take_part(self) -> None:
        while True:
            try:
                await self._be_member()
            except (KafkaError, OSError) as error:
                logger.warning("election-failed", error=repr(error))
            except Exception:
                logger.exception("election-failed")
            self.lose()
            await asyncio.sleep(_RETRY_S)

    async def _be_member(self) -> None:
        consumer = group_consumer(self._settings, self._group, heartbeat_interval_ms=_HEARTBEAT_MS)
        consumer.subscribe([self._topic], listener=_LeadershipListener(self, consumer))
        try:
            await consumer.start()
            while True:
                await consumer.getmany(timeout_ms=1000)
        except Exception:
            self.lose()  # before it leaves, which may take long: the group chooses another one
            raise
        finally:
            with contextlib.suppress(KafkaError, OSError, TimeoutError):
                async with asyncio.timeout(5):
                    await consumer.stop()


class _LeadershipListener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, election: LeaderElection, consumer: Any) -> None:
        self._election = election
        self._consumer = consumer

    async def on_partitions_assigned(self, added: Iterable[TopicPartition]) -> None:
        if gained := list(added):
            self._consumer.pause(*gained)  # it has no records: fetching would cost requests only
            self._election.gain()
        self._election.decided.set()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        if list(revoked):
            self._election.lose()
            # The next leader must not start its query before this one has stopped.
            await wait_at_most(self._election.query_stopped, _HAND_OVER_TIMEOUT_S)

    async def on_partitions_lost(self, lost: Any) -> None:
        if list(lost):
            self._election.lose()
