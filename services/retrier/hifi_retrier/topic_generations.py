"""Which of the topics that had one name a partition is of: offsets of a deleted one say nothing of the next one."""

import asyncio
import math
from typing import Final

from aiokafka.errors import KafkaError

from hifi.kafka.assigned_partition import AssignedPartition
from hifi.kafka.topic_identity import topic_identity
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s, wait_at_most
from hifi.runtime.errors import Fenced

_HOLDS_S: Final = 5.0
"""Time for which an answer holds for other partitions of the topic, which are assigned at the same time, seconds."""
_DIGITS: Final = 8
_RETRY_S: Final = 0.5
logger = log.get(__name__)


class TopicGenerations:
    """Asks Kafka once for each assignment."""

    def __init__(self, bootstrap: str) -> None:
        """Ask nothing yet.

        Args:
            bootstrap: `HOST:PORT,…`.
        """
        self._bootstrap = bootstrap
        self._by_partition: dict[AssignedPartition, str] = {}
        self._answers: dict[str, tuple[str, float]] = {}
        self._lock = asyncio.Lock()

    async def of(self, assigned: AssignedPartition) -> str:
        """Eight digits of the id of the partition's topic; empty: the brokers are older than Kafka 3.1.

        Raises:
            Fenced: the partition was revoked before Kafka answered.
        """
        generation = self._by_partition.get(assigned)
        if generation is not None:
            return generation
        while generation is None:
            try:
                async with self._lock:
                    generation = await self._newest(assigned.topic)
            except (KafkaError, OSError) as error:
                logger.warning("topic-not-identified", topic=assigned.topic, error=repr(error))
                if await wait_at_most(assigned.revoked, _RETRY_S):
                    raise Fenced(f"{assigned.topic}[{assigned.partition}] was revoked") from error
        self._by_partition = {
            partition: digits for partition, digits in self._by_partition.items() if not partition.fenced
        } | {assigned: generation}
        return generation

    async def _newest(self, topic: str) -> str:
        generation, asked_s = self._answers.get(topic, ("", -math.inf))
        now_s = monotonic_s()
        if now_s - asked_s > _HOLDS_S:
            generation = (await topic_identity(self._bootstrap, topic)).topic[:_DIGITS]
            self._answers[topic] = generation, now_s
        return generation
