"""Read how late normalize, enrich and egest are: their committed offsets beside the end offsets of their inputs."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError

from hifi import log, metrics
from hifi.clock import monotonic_s
from hifi.health import Health
from hifi.kafka.clients import topic_consumer
from hifi.kafka.security import client_options
from hifi.topics import Topics
from hifi_ingest.admission.backlog_limit import BacklogLimit
from hifi_ingest.admission.stage_lag import OutputProgress, StageLag, StageReading

_CALM_S: Final = 2.0
"""Time between two readings while no stage is late, seconds."""
_LATE_S: Final = 0.5
_LATE: Final = 0.25
"""Share of the bound above which a stage is read more often."""
_RETRY_S: Final = 2.0
_EGEST: Final = "egest"
_EGEST_BOUND_S: Final = 15.0
"""Egest's least bound, seconds: a delivery to a slow destination is queued for up to 10 s."""
_RETRIES_S: Final = 60.0
"""After a delivery went to the retrier, egest's lag is that of a destination for so long, seconds."""
_CONDITION: Final = "backlog"

logger = log.get(__name__)


class BacklogMonitor:
    """Sets the limit by the lag of the stages, as long as it runs."""

    def __init__(
        self,
        bootstrap: str,
        topics: Topics,
        partitions: int,
        limit: BacklogLimit,
        health: Health,
        bound_s: float,
    ) -> None:
        """Nothing is read before `run`.

        Args:
            bootstrap: `HOST:PORT,…`.
            topics: of the stream.
            partitions: of its event topics.
            limit: to set.
            health: warned while events are refused.
            bound_s: lag above which a stage is overloaded, seconds.
        """
        self._bootstrap = bootstrap
        self._topics = topics
        self._limit = limit
        self._health = health
        self._stages = {
            topics.raw: StageLag("normalize", bound_s),
            topics.normalized: StageLag("enrich", bound_s),
            topics.enriched: StageLag(_EGEST, max(bound_s, _EGEST_BOUND_S)),
        }
        self._enriched = OutputProgress()
        self._inputs = [TopicPartition(topic, each) for topic in self._stages for each in range(partitions)]
        tiers = [topics.retry_in(tier) for tier in topics.tiers]
        self._retries = [TopicPartition(topic, each) for topic in tiers for each in range(partitions)]
        self._readable = True
        self._retried = -1
        self._retried_s = -_RETRIES_S
        self._coordinators: dict[str, int] = {}
        self._accepted: deque[tuple[float, int]] = deque()

    async def run(self) -> None:
        """Read until cancelled. While Kafka does not answer there is no limit."""
        while True:
            try:
                async with self._clients() as (consumer, admin):
                    while True:
                        pause_s = await self._update(consumer, admin)
                        self._readable = True
                        await asyncio.sleep(pause_s)
            except (KafkaError, OSError, TimeoutError) as error:
                if self._readable:
                    logger.warning("backlog-unreadable", error=repr(error))
                self._readable = False
            self._coordinators.clear()
            self._limit.remove()
            self._warn()
            await asyncio.sleep(_RETRY_S)

    @contextlib.asynccontextmanager
    async def _clients(self) -> AsyncIterator[tuple[Any, Any]]:
        async with topic_consumer(self._bootstrap) as consumer:
            admin = AIOKafkaAdminClient(**client_options(self._bootstrap))
            try:
                await admin.start()
                yield consumer, admin
            finally:
                with contextlib.suppress(KafkaError, OSError):
                    await admin.close()

    async def _update(self, consumer: Any, admin: Any) -> float:
        """Read once and set the limit; returns the time until the next reading, seconds."""
        committed = {
            topic: await self._committed(admin, stage.service, topic) for topic, stage in self._stages.items()
        }
        found: dict[TopicPartition, int] = await consumer.end_offsets(self._inputs + self._retries)
        now_s = monotonic_s()
        self._note_retries(now_s, sum(found[tp] for tp in self._retries))
        ends: dict[str, dict[int, int]] = {topic: {} for topic in self._stages}
        for tp in self._inputs:
            ends[tp.topic][tp.partition] = found[tp]
        normalized, enriched = self._topics.normalized, self._topics.enriched
        committed[normalized] = self._enriched.completed(
            ends[normalized], committed[normalized], ends[enriched]
        )
        for topic, stage in self._stages.items():
            stage.add(now_s, ends[topic], committed[topic])
        readings = [reading for stage in self._stages.values() if (reading := stage.read()) is not None]
        for reading in readings:
            metrics.STAGE_LAG_SECONDS.labels(reading.service).set(reading.lag_s)
        counted = [reading for reading in readings if self._is_counted(reading, now_s)]
        self._limit.update(counted, self._accepted_since(now_s, counted))
        self._warn()
        late = any(reading.lag_s > reading.bound_s * _LATE for reading in counted)
        return _LATE_S if late or self._limit.rate_per_s is not None else _CALM_S

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
            tp.partition: found.offset
            for tp, found in offsets.items()
            if tp.topic == topic and found.offset >= 0
        }

    def _note_retries(self, now_s: float, retried: int) -> None:
        if self._retried >= 0 and retried > self._retried:
            self._retried_s = now_s
        self._retried = retried

    def _is_counted(self, reading: StageReading, now_s: float) -> bool:
        return reading.service != _EGEST or now_s - self._retried_s > _RETRIES_S

    def _accepted_since(self, now_s: float, readings: list[StageReading]) -> int:
        """Events that this process accepted in the time that the readings span."""
        self._accepted.append((now_s, self._limit.accepted))
        span_s = max((reading.span_s for reading in readings), default=0.0)
        while len(self._accepted) > 2 and self._accepted[1][0] <= now_s - span_s:
            self._accepted.popleft()
        return self._accepted[-1][1] - self._accepted[0][1]

    def _warn(self) -> None:
        """Log when the limit is set or removed, and show it in /readyz."""
        rate_per_s, service = self._limit.rate_per_s, self._limit.service
        if rate_per_s is None:
            if _CONDITION in self._health.warnings:
                logger.info("backlog-limit-removed")
            self._health.warn(_CONDITION, None)
            return
        if _CONDITION not in self._health.warnings:
            logger.warning("backlog-limit-set", service=service, events_per_s=round(rate_per_s))
        self._health.warn(
            _CONDITION,
            f"{service} is overloaded: {rate_per_s:.0f} events a second are accepted, the rest gets 429",
        )
