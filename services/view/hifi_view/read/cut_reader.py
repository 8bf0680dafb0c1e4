"""Reads the progress of the services before a topic, for all views of the topic."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.clients import started_admin, topic_consumer
from hifi.kafka.topics import Topics
from hifi.pipe.view import ViewedTopic
from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi_view.read.completeness import Cut, Cuts, Offsets
from hifi_view.settings import ViewSettings

_RETRY_S: Final = 1.0
logger = log.get(__name__)


class _Service(NamedTuple):
    group: str
    reads: str
    writes: str


def services_before(viewed_topic: ViewedTopic, topics: Topics) -> Sequence[_Service]:
    """The services between `raw` and a topic, in the order of the flow."""
    normalize = _Service(topics.group("normalize"), topics.raw, topics.normalized)
    enrich = _Service(topics.group("enrich"), topics.normalized, topics.enriched)
    return {
        ViewedTopic.RAW: (),
        ViewedTopic.NORMALIZED: (normalize,),
        ViewedTopic.ENRICHED: (normalize, enrich),
    }[viewed_topic]


class CutReader:
    """Makes cuts of one topic, with times of this host's clock.

    Args:
        settings: of the service.
        viewed_topic: the topic.
        partitions: of each event topic.
        on_cut: gets each cut.
    """

    def __init__(
        self,
        settings: ViewSettings,
        viewed_topic: ViewedTopic,
        partitions: int,
        on_cut: Callable[[Cut], None],
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._on_cut = on_cut
        self._services = services_before(viewed_topic, settings.topics)
        self._raw = settings.topics.raw

    async def run(self) -> None:
        """Read until cancelled; while Kafka is away there are no cuts."""
        while True:
            try:
                await self._read()
            except (KafkaError, OSError) as error:
                logger.warning("cuts-unreadable", error=repr(error))
            await asyncio.sleep(_RETRY_S)

    async def _read(self) -> None:
        kafka, client_id = self._settings.kafka, self._settings.instance
        cuts = Cuts(len(self._services))
        async with started_admin(kafka, client_id) as admin, topic_consumer(kafka, client_id) as consumer:
            while True:
                time_us = now_us()
                cuts.begin(time_us, await self._end_offsets(consumer, self._raw))
                for index, service in enumerate(self._services):
                    committed_offsets = await self._committed_offsets(admin, service)
                    cuts.advance(index, committed_offsets, await self._end_offsets(consumer, service.writes))
                for cut in cuts.take():
                    self._on_cut(cut)
                await asyncio.sleep(self._settings.view_complete_interval_s)

    async def _end_offsets(self, consumer: Any, topic: str) -> Offsets:
        topic_partitions = [TopicPartition(topic, partition) for partition in range(self._partitions)]
        end_offsets = await consumer.end_offsets(topic_partitions)
        return {topic_partition.partition: offset for topic_partition, offset in end_offsets.items()}

    @staticmethod
    async def _committed_offsets(admin: Any, service: _Service) -> Offsets:
        offsets = await admin.list_consumer_group_offsets(service.group)
        return {
            topic_partition.partition: max(0, committed.offset)
            for topic_partition, committed in offsets.items()
            if topic_partition.topic == service.reads
        }
