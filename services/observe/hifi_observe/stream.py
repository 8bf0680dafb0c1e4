"""The stream as one instance reads it, and what the instance publishes about it."""

import asyncio
import secrets
from collections.abc import Callable
from functools import partial

from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.health import Health
from hifi_observe.kafka.chain_reader import ChainReader
from hifi_observe.kafka.id_names import IdNames
from hifi_observe.kafka.minutes_follower import MinutesFollower
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.kafka.publication import FiguresPublication, publish_minutes
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.kafka.reconnection import reconnect
from hifi_observe.kafka.record_lookup import LookupSlots
from hifi_observe.kafka.watermark_publication import WatermarkPublication
from hifi_observe.live.live_figures import LiveFigures
from hifi_observe.minutes.merger import MinuteMerger
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.pipes import ObservedPipes
from hifi_observe.settings import ObserveSettings
from hifi_observe.steps.step_accounting import StepAccounting
from hifi_observe.traces.tracing import Tracing
from hifi_observe.watermark.chain_statements import ChainStatements
from hifi_observe.watermark.watermark_store import WatermarkStore


class ObservedStream:
    """Reads all topics, and publishes minutes and momentary figures.

    Args:
        settings: of the service.
        health: not ready until the topics are read.
        alarms: called with key and value of each record of the topic `alarms`.
    """

    def __init__(
        self,
        settings: ObserveSettings,
        health: Health,
        alarms: Callable[[bytes | None, bytes | None], None],
    ) -> None:
        self._settings = settings
        self.health = health
        topics = settings.topics
        self.registry = PipeRegistry(settings.kafka, topics, health)
        self.store = MinuteStore()
        self.pipes = ObservedPipes(self.registry, self.store, settings.observe_heartbeat_gap_s)
        self.watermarks = WatermarkStore(secrets.token_hex(8))
        self.live = LiveFigures(self.store)
        producer = Producer(settings.kafka, settings.instance, compression="zstd", health=health)
        self.publisher = Publisher(producer, topics, lambda: self.registry.partitions or 0)
        self.tracing = Tracing(settings, self.pipes.hides_id)
        self.partitions = ObservedPartitions(
            settings,
            health,
            self.pipes,
            self.publisher,
            self.watermarks.clock,
            self.tracing.tracer,
            lambda: self.store.newest_term,
        )
        self.follower = MinutesFollower(settings, topics, self.store, self.watermarks, alarms)

    async def start(self) -> None:
        """Load the pipes and connect; tries again until Kafka answers."""
        await self.registry.start()
        await self.publisher.start()

    async def load(self, tasks: asyncio.TaskGroup) -> None:
        """Follow what is published, and return once everything published so far has been read."""
        partitions = self.publisher.partitions
        tasks.create_task(reconnect("follower", lambda: self.follower.run(partitions), self.health))
        await self.follower.loaded.wait()

    def run(self, tasks: asyncio.TaskGroup, keep_lags: Callable[[], bool], slots: LookupSlots) -> None:
        """Start the tasks that read, merge and publish; call it after `load`.

        Args:
            tasks: runs them until cancelled.
            keep_lags: see `MinuteMerger`.
            slots: of look-ups in Kafka.
        """
        settings, health = self._settings, self.health
        merger = MinuteMerger(
            self.store,
            self.publisher.partitions,
            self.pipes.limits_of,
            self.pipes.first_minute,
            keep_h=settings.observe_keep_h,
            amend_s=settings.observe_amend_s,
            keep_lags=keep_lags,
            rules=settings.rules,
            owners=self.pipes.owner_names,
            term=self.partitions.term_of,
        )
        chains = ChainStatements(self.watermarks)
        watermarks = WatermarkPublication(
            self.watermarks, self.store, self.pipes, self.partitions, self.publisher, chains
        )
        tasks.create_task(
            reconnect("watermarks", lambda: watermarks.run(settings.observe_watermark_interval_s), health)
        )
        chain_reader = ChainReader(settings, settings.topics, chains, watermarks.owns, self.watermarks.clock)
        tasks.create_task(reconnect("chains", chain_reader.run, health))
        steps = StepAccounting(settings, self.pipes, self.partitions, self.store)
        tasks.create_task(reconnect("steps", steps.run, health))
        figures = FiguresPublication(self.pipes, self.partitions, self.publisher, steps.published)
        tasks.create_task(reconnect("reader", self.partitions.run, health))
        publish = partial(
            publish_minutes,
            merger,
            self.store,
            self.pipes,
            self.partitions,
            self.publisher,
            settings.observe_amend_interval_s,
        )
        tasks.create_task(reconnect("minutes", publish, health))
        id_names = IdNames(
            settings,
            self.store,
            self.pipes,
            self.publisher,
            slots,
            lambda pipes: merger.owned(pipes, self.partitions.numbers),
        )
        tasks.create_task(reconnect("ids", id_names.run, health))
        tasks.create_task(reconnect("figures", lambda: figures.run(settings.observe_live_interval_s), health))
        tasks.create_task(reconnect("samples", lambda: self.live.sample(self.pipes.names), health))

    async def stop(self) -> None:
        """Flush and disconnect."""
        await self.publisher.stop()
        await self.registry.stop()
        await self.tracing.stop()
