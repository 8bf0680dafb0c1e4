"""Reads how far the services before a topic are, for all views of the topic."""

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


def services_before(at: ViewedTopic, topics: Topics) -> Sequence[_Service]:
    """The services between `raw` and a topic, in the order of the flow."""
    normalize = _Service(topics.group("normalize"), topics.raw, topics.normalized)
    enrich = _Service(topics.group("enrich"), topics.normalized, topics.enriched)
    return {
        ViewedTopic.RAW: (),
        ViewedTopic.NORMALIZED: (normalize,),
        ViewedTopic.ENRICHED: (normalize, enrich),
    }[at]


class CutReader:
    """Makes cuts of one topic. Their time is that of this host's clock.

    Args:
        settings: of the service.
        at: the topic.
        partitions: of each event topic.
        on_cut: gets each cut.
    """

    def __init__(
        self, settings: ViewSettings, at: ViewedTopic, partitions: int, on_cut: Callable[[Cut], None]
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._on_cut = on_cut
        self._services = services_before(at, settings.topics)
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
        kafka = self._settings.kafka
        cuts = Cuts(len(self._services))
        async with started_admin(kafka) as admin, topic_consumer(kafka, self._settings.instance) as consumer:
            while True:
                time_us = now_us()
                cuts.begin(time_us, await self._ends(consumer, self._raw))
                for number, service in enumerate(self._services):
                    committed = await self._committed(admin, service)
                    cuts.advance(number, committed, await self._ends(consumer, service.writes))
                for cut in cuts.take():
                    self._on_cut(cut)
                await asyncio.sleep(self._settings.view_complete_interval_s)

    async def _ends(self, consumer: Any, topic: str) -> Offsets:
        tps = [TopicPartition(topic, number) for number in range(self._partitions)]
        return {tp.partition: end for tp, end in (await consumer.end_offsets(tps)).items()}

    @staticmethod
    async def _committed(admin: Any, service: _Service) -> Offsets:
        offsets = await admin.list_consumer_group_offsets(service.group)
        return {
            tp.partition: max(0, committed.offset)
            for tp, committed in offsets.items()
            if tp.topic == service.reads
        }
