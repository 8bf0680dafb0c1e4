"""Read how late normalize, enrich and egest are: their committed offsets beside the end offsets of their inputs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError

from hifi.delivery.stage_lag import OutputProgress, StageLag, StageReading
from hifi.kafka.clients import admin_client, topic_consumer
from hifi.kafka.topics import Topics
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s

EGEST: Final = "egest"
_RETRY_S: Final = 2.0

logger = log.get(__name__)


class StageReadings(NamedTuple):
    """The readings of all stages."""

    at_s: float
    """When it was read, monotonic, seconds."""
    stages: list[StageReading]
    """Without stages that were read only once."""
    retried_s: float
    """When it was last seen that a delivery had gone to the retrier, monotonic, seconds; `-inf`: never."""


class StageMonitor:
    """Reads the stages from time to time, as long as it runs."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        topics: Topics,
        partitions: int,
        bound_s: float,
        egest_bound_s: float,
    ) -> None:
        """Nothing is read before `run`.

        Args:
            bootstrap: `HOST:PORT,…`.
            client_id: name in the logs and quotas of the broker.
            topics: of the stream.
            partitions: of its event topics.
            bound_s: of the readings of normalize and enrich, seconds.
            egest_bound_s: of those of egest.
        """
        self._bootstrap, self._client_id = bootstrap, client_id
        self._topics = topics
        self.stages = {
            topics.raw: StageLag("normalize", bound_s),
            topics.normalized: StageLag("enrich", bound_s),
            topics.enriched: StageLag(EGEST, egest_bound_s),
        }
        """Topic to the stage that reads it."""
        self._enrich_progress = OutputProgress()
        self._input_partitions = [
            TopicPartition(topic, number) for topic in self.stages for number in range(partitions)
        ]
        tiers = [topics.retry_in(tier) for tier in topics.tiers]
        self._retry_partitions = [
            TopicPartition(topic, number) for topic in tiers for number in range(partitions)
        ]
        self._readable = True
        self._retry_offset_sum = -1
        self._retried_s = float("-inf")
        self._coordinators: dict[str, int] = {}

    async def run(self, take: Callable[[StageReadings], float], unreadable: Callable[[], None]) -> None:
        """Read until cancelled.

        Args:
            take: gets the readings, and returns the time until the next ones, seconds.
            unreadable: is called when Kafka does not answer, until it does.
        """
        while True:
            try:
                async with self._clients() as (consumer, admin):
                    while True:
                        pause_s = take(await self._read(consumer, admin))
                        self._readable = True
                        await asyncio.sleep(pause_s)
            except (KafkaError, OSError, TimeoutError) as error:
                if self._readable:
                    logger.warning("backlog-unreadable", error=repr(error))
                self._readable = False
            self._coordinators.clear()
            unreadable()
            await asyncio.sleep(_RETRY_S)

    @contextlib.asynccontextmanager
    async def _clients(self) -> AsyncIterator[tuple[Any, Any]]:
        async with topic_consumer(self._bootstrap, self._client_id) as consumer:
            admin = admin_client(self._bootstrap, self._client_id)
            try:
                await admin.start()
                yield consumer, admin
            finally:
                with contextlib.suppress(KafkaError, OSError):
                    await admin.close()

    async def _read(self, consumer: Any, admin: Any) -> StageReadings:
        committed = {
            topic: await self._committed(admin, stage.service, topic) for topic, stage in self.stages.items()
        }
        end_offsets: dict[TopicPartition, int] = await consumer.end_offsets(
            self._input_partitions + self._retry_partitions
        )
        now_s = monotonic_s()
        self._note_retries(now_s, sum(end_offsets[tp] for tp in self._retry_partitions))
        ends_by_topic: dict[str, dict[int, int]] = {topic: {} for topic in self.stages}
        for tp in self._input_partitions:
            ends_by_topic[tp.topic][tp.partition] = end_offsets[tp]
        normalized, enriched = self._topics.normalized, self._topics.enriched
        committed[normalized] = self._enrich_progress.completed(
            ends_by_topic[normalized], committed[normalized], ends_by_topic[enriched]
        )
        for topic, stage in self.stages.items():
            stage.add(now_s, ends_by_topic[topic], committed[topic])
        readings = [reading for stage in self.stages.values() if (reading := stage.read()) is not None]
        return StageReadings(now_s, readings, self._retried_s)

    async def _committed(self, admin: Any, service: str, topic: str) -> dict[int, int]:
        """Partition to the committed offset of a topic; without those that have none."""
        group = self._topics.group(service)
        try:
            coordinator = self._coordinators.get(group)
            if coordinator is None:
                coordinator = self._coordinators[group] = await admin.find_coordinator(group)
            offsets = await admin.list_consumer_group_offsets(group, coordinator)
        except GroupCoordinatorNotAvailableError:  # no group of this cluster has had a member yet
            return {}
        return {
            tp.partition: commit.offset
            for tp, commit in offsets.items()
            if tp.topic == topic and commit.offset >= 0
        }

    def _note_retries(self, now_s: float, offset_sum: int) -> None:
        if self._retry_offset_sum >= 0 and offset_sum > self._retry_offset_sum:
            self._retried_s = now_s
        self._retry_offset_sum = offset_sum
