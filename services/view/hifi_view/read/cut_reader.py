"""Reads the progress of the services before a topic, for all views of the topic."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.clients import started_admin, topic_consumer
from hifi.kafka.late_answers import LateAnswers
from hifi.kafka.topic_identity import topic_identity
from hifi.kafka.topics import Topics
from hifi.pipe.view import ViewedTopic
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s
from hifi.runtime.trusted_clock import read_clocks
from hifi_view.read.completeness import Cuts, Offsets, reaches
from hifi_view.read.followed_view import FollowedView
from hifi_view.read.view_clock import ViewClock
from hifi_view.settings import ViewSettings

_RETRY_S: Final = 1.0
_IDENTITY_S: Final = 10.0
"""Time between questions whether `raw` is the same topic; it is asked at once when an end of it goes back."""
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
    """Makes cuts of one topic.

    Args:
        settings: of the service.
        viewed_topic: the topic.
        partitions: of each event topic.
        views: that read it; they get each cut.
        clock: names the times of the cuts.
    """

    def __init__(
        self,
        settings: ViewSettings,
        viewed_topic: ViewedTopic,
        partitions: int,
        views: Sequence[FollowedView],
        clock: ViewClock,
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._views = views
        self._clock = clock
        self._services = services_before(viewed_topic, settings.topics)
        self._raw = settings.topics.raw
        self._raw_identity: str | None = None
        self._raw_ends: Offsets = {}
        self._identity_s = -_IDENTITY_S
        self._late_answers = LateAnswers()

    async def run(self) -> None:
        """Read until cancelled; while Kafka is away there are no cuts."""
        while True:
            try:
                await self._read()
            except (KafkaError, OSError) as error:
                logger.warning("cuts-unreadable", error=repr(error))
            await asyncio.sleep(_RETRY_S)

    async def _read(self) -> None:
        """Read until `raw` is another topic."""
        kafka, client_id = self._settings.kafka, self._settings.instance
        cuts, set_back, self._identity_s = Cuts(len(self._services)), self._clock.set_back, -_IDENTITY_S
        async with started_admin(kafka, client_id) as admin, topic_consumer(kafka, client_id) as consumer:
            while True:
                asked_clocks = read_clocks()
                time_us = self._clock.time_us(asked_clocks)
                end_offsets = await self._end_offsets(consumer, self._raw)
                if end_offsets is not None:
                    if not await self._is_same_raw(end_offsets):
                        return
                    cuts.begin(time_us, end_offsets)
                for index, service in enumerate(self._services):
                    committed_offsets = await self._committed_offsets(admin, service)
                    asked_clocks = read_clocks()
                    end_offsets = await self._end_offsets(consumer, service.writes)
                    if end_offsets is not None:
                        cuts.advance(index, committed_offsets, end_offsets)
                passed_cuts = cuts.take()
                self._clock.time_us(read_clocks())
                if self._clock.set_back != set_back:  # the cuts name times that may not have come yet
                    cuts, set_back, passed_cuts = Cuts(len(self._services)), self._clock.set_back, []
                for view in self._views:
                    if end_offsets is not None:
                        view.note_ends(asked_clocks, end_offsets)
                    for cut in passed_cuts:
                        view.add_cut(cut)
                await asyncio.sleep(self._settings.view_complete_interval_s)

    async def _is_same_raw(self, end_offsets: Offsets) -> bool:
        """Whether ends that were read are of the same `raw` as those before. Views learn which topic it is."""
        ends_went_back = not reaches(end_offsets, self._raw_ends)
        self._raw_ends = end_offsets
        if not ends_went_back and monotonic_s() < self._identity_s + _IDENTITY_S:
            return True
        identity = (await topic_identity(self._settings.kafka, self._raw)).topic
        self._identity_s = monotonic_s()
        previous_identity, self._raw_identity = self._raw_identity, identity
        for view in self._views:
            view.note_raw(identity)
        return previous_identity in (None, identity)

    async def _end_offsets(self, consumer: Any, topic: str) -> Offsets | None:
        """The ends of a topic; None: the answer does not count."""
        topic_partitions = [TopicPartition(topic, partition) for partition in range(self._partitions)]
        asked_us = read_clocks().monotonic_us
        end_offsets = await consumer.end_offsets(topic_partitions)
        if not self._late_answers.counts(asked_us, read_clocks().monotonic_us):
            return None
        return {topic_partition.partition: offset for topic_partition, offset in end_offsets.items()}

    @staticmethod
    async def _committed_offsets(admin: Any, service: _Service) -> Offsets:
        offsets = await admin.list_consumer_group_offsets(service.group)
        return {
            topic_partition.partition: max(0, committed.offset)
            for topic_partition, committed in offsets.items()
            if topic_partition.topic == service.reads
        }
