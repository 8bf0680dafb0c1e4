"""One instance of observe: its state, and the tasks that read, merge, publish and raise alarms."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aiokafka.errors import KafkaError

from hifi.control.action import STREAM, Action
from hifi.control.verdict import Verdict
from hifi.delivery.destination_follower import DestinationFollower
from hifi.delivery.destination_state import DestinationStates
from hifi.kafka.admin import topic_names
from hifi.kafka.producer import Producer
from hifi.pipe.model import Pipe
from hifi.pipe.owner import Owner
from hifi.pipe.reader import reader
from hifi.pipe.registry import PipeRegistry
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s, now_us
from hifi.runtime.errors import HifiError
from hifi.runtime.health import Health
from hifi_observe import metrics
from hifi_observe.alarms import conditions, gauges
from hifi_observe.alarms.alarm import Alarm, Key
from hifi_observe.alarms.alarm_notifier import AlarmNotifier
from hifi_observe.alarms.owner_conditions import WINDOW_S, RefusedEvents
from hifi_observe.alarms.owner_notifier import OwnerNotifier
from hifi_observe.colours.colours_view import ColoursView
from hifi_observe.kafka.dead_letter_reader import DeadLetterReader
from hifi_observe.kafka.minutes_follower import MinutesFollower
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.kafka.record_lookup import LookupSlots
from hifi_observe.kafka.topic_reader import TopicReader
from hifi_observe.live import figures
from hifi_observe.live.recent_series import RecentSeries
from hifi_observe.live.revision_counts import RevisionCounts
from hifi_observe.minutes.availability import DestinationLimits, SloLimits
from hifi_observe.minutes.merger import MinuteMerger
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.open_minute import OpenMinuteReporter
from hifi_observe.settings import ObserveSettings
from hifi_observe.skew.comparison import SkewRules
from hifi_observe.skew.skew_keeper import SkewKeeper
from hifi_observe.traces.event_tracer import EventTracer
from hifi_observe.verdicts.judgement import SERVICES, PipeTraffic, judge
from hifi_observe.verdicts.verdict_keeper import VerdictKeeper
from hifi_observe.verdicts.verdict_reporter import VerdictReporter

if TYPE_CHECKING:
    from hifi_observe.traces.otlp_exporter import OtlpExporter

_RECONNECT_S: Final = 2.0
_ALARM_INTERVAL_S: Final = 1.0
_GAUGES_INTERVAL_S: Final = 5.0
_FRONT_INTERVAL_S: Final = 2.0
_PIPE_SCOPE: Final = "pipe/"
_LAG_INTERVALS: Final = 15
"""Publications of momentary figures whose lags are merged, so that a p95 has enough values."""

logger = log.get(__name__)


class Observatory:
    """State and tasks of one instance. It keeps serving its last state while Kafka is away."""

    def __init__(self, settings: ObserveSettings, health: Health) -> None:
        self.settings = settings
        self.health = health
        self.topics = settings.topics
        self.store = MinuteStore()
        self.recent = RecentSeries()
        self.notifier = AlarmNotifier(settings)
        self._owners = OwnerNotifier(
            settings,
            self._owner_of,
            lambda alarm, ways: self.notifier.owner_told(alarm, ways, self.publisher),
        )
        self._refused = RefusedEvents()
        self.skews = SkewKeeper(
            self.store,
            SkewRules(
                settings.observe_skew_window_minutes,
                settings.observe_skew_reference_minutes,
                settings.observe_skew_events,
                settings.observe_skew_distance,
            ),
        )
        self.registry = PipeRegistry(settings.kafka, self.topics, health)
        self.producer = Producer(settings.kafka, settings.instance, compression="zstd")
        self.publisher: Publisher | None = None
        self.reader: TopicReader | None = None
        self.follower = MinutesFollower(settings, self.topics, self.store, self.notifier.read)
        self._destination_states = DestinationStates()
        self._verdict_keeper = VerdictKeeper(settings.observe_stable_s)
        self._revision_counts = RevisionCounts()
        self._reporter = (
            VerdictReporter(
                settings,
                lambda: self.verdicts() if self._raises_alarms else [],
                self.notifier.alarms.silences,
            )
            if settings.control
            else None
        )
        self.colours = ColoursView(settings, self.store.fronts)
        self.exporter: OtlpExporter | None = None
        self.traces: EventTracer | None = None
        if settings.observe_otlp_endpoint:
            self._start_tracing()
        self.lookups = LookupSlots()
        self._raises_alarms = False
        health.block("ledgers", "the topics have not been read yet")

    @property
    def partitions(self) -> int:
        """Partition count of the stream; 0 until it is known."""
        return self.registry.partitions or 0

    @property
    def mine(self) -> set[int]:
        """Partition numbers that this instance observes."""
        return set(self.reader.ledgers) if self.reader is not None else set()

    def limits(self) -> dict[str, SloLimits]:
        """Pipe to the limits of its SLO."""
        return {published.pipe.pipe: self._limits(published.pipe) for published in self.registry.all()}

    def _limits(self, pipe: Pipe) -> SloLimits:
        return SloLimits(
            round(pipe.slo.p95 * 1e6),
            pipe.slo.loss,
            self.settings.observe_heartbeat_gap_s,
            destinations={
                destination.name: DestinationLimits(round(destination.slo.p95 * 1e6), destination.slo.loss)
                for destination in pipe.destinations
                if destination.slo is not None
            },
        )

    def _rolling(self) -> list[str]:
        """The pipes whose outcomes the rollout service judges."""
        return [
            published.pipe.pipe for published in self.registry.all() if published.rollout or published.cap
        ]

    def limits_of(self, name: str) -> SloLimits | None:
        """Limits of the SLO of a pipe; None: it is not declared."""
        published = self.registry.get(name)
        return self._limits(published.pipe) if published is not None else None

    def first_minute(self, name: str) -> int:
        """The minute in which a pipe was declared, until its first minute is closed; 0 from then on."""
        if self.store.minutes.get(name):
            return 0
        return (self.registry.since_ms(name) or 0) // 60_000

    def _owner_of(self, name: str) -> Owner | None:
        published = self.registry.get(name)
        return published.pipe.owner if published is not None else None

    def destinations(self) -> dict[str, set[str]]:
        """Pipe to the destinations that it declares."""
        return {
            published.pipe.pipe: {destination.name for destination in published.pipe.destinations}
            for published in self.registry.all()
        }

    def _lake_destinations(self) -> frozenset[tuple[str, str]]:
        return frozenset(
            (published.pipe.pipe, destination.name)
            for published in self.registry.in_use()
            for destination in published.pipe.destinations
            if reader(destination) == "lake"
        )

    def verdicts(self) -> list[Verdict]:
        """The newest verdict on every scope, by scope."""
        return [
            replace(verdict, rollout=self._revision_counts.get(verdict.scope.removeprefix(_PIPE_SCOPE)))
            if verdict.scope.startswith(_PIPE_SCOPE)
            else verdict
            for verdict in self._verdict_keeper.verdicts
        ]

    def actions(self) -> list[Action] | None:
        """The steps of the control plane, newest first; None without one."""
        return None if self._reporter is None else self._reporter.actions

    def alarms(self) -> list[Alarm]:
        """Active alarms according to the topic `alarms`, so the same on every instance."""
        return [alarm for alarm in self.notifier.known_alarms if alarm.ended_us is None]

    async def start(self) -> None:
        """Load the pipes and connect; retries until Kafka answers."""
        await self.registry.start()
        while True:
            try:
                await self.producer.start()
                break
            except (KafkaError, OSError) as error:
                logger.warning("kafka-unreachable", error=repr(error))
                await asyncio.sleep(_RECONNECT_S)
        self.publisher = Publisher(self.producer, self.topics, self.partitions)

    async def run(self) -> None:
        """Run all tasks until cancelled. Alarms and merging start once the published minutes have been read."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reconnect("follower", lambda: self.follower.run(self.partitions)))
            await self.follower.loaded.wait()
            tasks.create_task(self._reconnect("reader", self._read_topics))
            tasks.create_task(self._follow_destinations())
            tasks.create_task(self._merge_minutes())
            tasks.create_task(self._publish_figures())
            tasks.create_task(self._sample_figures())
            tasks.create_task(self._raise_alarms())
            tasks.create_task(self.notifier.post())
            tasks.create_task(self._tell_owners())
            tasks.create_task(self._reconnect("dead-letters", self._dead_letters().run))
            if self._reporter is not None:
                tasks.create_task(self._reconnect("verdicts", self._reporter.report))
                tasks.create_task(self._reconnect("actions", self._reporter.follow_actions))
            if self.settings.colours:
                tasks.create_task(self._reconnect("colours", self.colours.follow))
                tasks.create_task(self.colours.front.run())
                tasks.create_task(self._publish_front())

    async def stop(self) -> None:
        """Flush and disconnect."""
        await self.producer.stop(timeout_s=5)
        await self.registry.stop()
        if self.exporter is not None:
            await asyncio.to_thread(self.exporter.stop, 3)

    def hides_id(self, pipe: str) -> bool:
        """Whether the event ids of a pipe come from a field that it masks; True for an unknown pipe."""
        published = self.registry.get(pipe)
        if published is None:
            return True
        id_field, masks = published.pipe.source.id, published.pipe.normalize.mask
        return id_field is not None and any(f"{id_field}.".startswith(f"{path}.") for path in masks)

    @property
    def silent_s(self) -> float:
        """Time since Kafka's last answer, seconds."""
        answered = [self.follower.answered_s] + ([self.reader.answered_s] if self.reader else [])
        return monotonic_s() - max(answered)

    def _start_tracing(self) -> None:
        from hifi_observe.traces.otlp_exporter import OtlpExporter

        settings = self.settings
        self.exporter = OtlpExporter(settings.observe_otlp_endpoint, settings.stream)
        share, max_per_s = settings.observe_otlp_share, settings.observe_otlp_max_per_s
        self.traces = EventTracer(self.topics, share, max_per_s, self.exporter.put, self.hides_id)

    async def _follow_destinations(self) -> None:
        follower = DestinationFollower(self.settings.kafka, self.topics, self.settings.instance)
        self._destination_states = follower.states
        try:
            await follower.start()
            await asyncio.Event().wait()
        finally:
            await follower.stop()

    async def _reconnect(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run a task that needs Kafka again each time it fails."""
        while True:
            try:
                await work()
            except* (TimeoutError, KafkaError, OSError, HifiError) as errors:
                logger.warning("kafka-task-failed", task=name, error=repr(errors.exceptions[0]))
            await asyncio.sleep(_RECONNECT_S)

    async def _tell_owners(self) -> None:
        """Tell the owners of pipes of what only they can repair."""
        while True:
            if self._raises_alarms:
                await self._owners.step(self.notifier.told)
            await asyncio.sleep(_ALARM_INTERVAL_S)

    def _dead_letters(self) -> DeadLetterReader:
        return DeadLetterReader(self.settings, self.topics, self.partitions, WINDOW_S, self._refused.add)

    async def _read_topics(self) -> None:
        """Read all topics into ledgers and publish the minutes that close."""
        assert self.publisher is not None
        retry_topics = await topic_names(self.settings.kafka, self.topics.retry_in_prefix)
        topics = self.topics.with_removed_tiers(retry_topics)
        self.reader = TopicReader(self.settings, topics, self.publisher, self.traces, self._lake_destinations)
        running = asyncio.create_task(self.reader.run())
        joined = asyncio.create_task(self.reader.joined.wait())
        await asyncio.wait({running, joined}, return_when=asyncio.FIRST_COMPLETED)
        joined.cancel()
        if not running.done():
            self.health.unblock("ledgers")
        try:
            await running
        finally:
            running.cancel()
            self.reader.ledgers.clear()

    async def _merge_minutes(self) -> None:
        """Merge the partitions' shares of the pipes that this instance owns."""
        assert self.publisher is not None
        settings = self.settings
        merger = MinuteMerger(
            self.store,
            self.partitions,
            self.limits_of,
            self.first_minute,
            keep_h=settings.observe_keep_h,
            amend_s=settings.observe_amend_s,
            keep_lags=lambda: self.colours.known,
        )
        while True:
            pipes = {published.pipe.pipe for published in self.registry.all()}
            pipes.update(pipe for pipe, minutes in self.store.changed.items() if minutes)
            for pipe in merger.owned(sorted(pipes), self.mine):
                records = merger.merge(pipe)
                if records:
                    await self.publisher.pipe(pipe, records)
            await asyncio.sleep(min(1.0, settings.observe_amend_interval_s))

    async def _publish_figures(self) -> None:
        """Publish the momentary figures and the open minutes of each partition number of this instance."""
        assert self.publisher is not None
        windows: dict[int, figures.LagWindow] = {}
        reporters: dict[int, OpenMinuteReporter] = {}
        while True:
            await asyncio.sleep(self.settings.observe_live_interval_s)
            limits, rolling = self.limits(), self._rolling()
            for partition, ledger in list((self.reader.ledgers if self.reader else {}).items()):
                window = windows.setdefault(partition, figures.LagWindow(_LAG_INTERVALS))
                taken = ledger.live.take_lags()
                figures.count_late(ledger, taken, limits)
                published = figures.of_ledger(ledger, now_us(), window.put(taken), rolling)
                await self.publisher.live(partition, published)
                reporter = reporters.setdefault(partition, OpenMinuteReporter())
                if rows := reporter.report(ledger.pipe_minutes.values()):
                    await self.publisher.open_minutes(partition, rows)
                metrics.PIPE_MINUTES.labels(str(partition)).set(len(ledger.pipe_minutes))

    async def _publish_front(self) -> None:
        """Publish what the front refused, minute by minute, on the instance with partition 0."""
        assert self.publisher is not None
        while True:
            await asyncio.sleep(_FRONT_INTERVAL_S)
            if 0 not in self.mine:
                continue
            for minute, counts in self.colours.unpublished(now_us() // 60_000_000):
                await self.publisher.front(minute, counts)
                await self.publisher.front(minute - int(self.settings.observe_keep_h * 60), None)

    async def _sample_figures(self) -> None:
        """Take one sample a second for the charts of the last five minutes."""
        while True:
            await asyncio.sleep(1)
            pipes = (published.pipe.pipe for published in self.registry.all())
            at_s = now_us() // 1_000_000
            for pipe in self.recent.watched(pipes, monotonic_s()):
                self.recent.add(pipe, at_s, figures.of_pipe(pipe, self.store.live, self.store.before))

    def _judge(self, active: Mapping[Key, str]) -> None:
        traffic = {}
        for pipe in self.limits():
            now = figures.of_pipe(pipe, self.store.live, self.store.before)
            traffic[pipe] = PipeTraffic(now["rate_in"], now["dead_last_minute"])
        scopes = (
            STREAM,
            *(f"service/{service}" for service in SERVICES),
            *(_PIPE_SCOPE + pipe for pipe in traffic),
        )
        self._revision_counts.step(self.store.live, self._rolling(), now_us())
        self._verdict_keeper.step(scopes, judge(active, traffic, seen=bool(self.store.live)), now_us())

    async def _raise_alarms(self) -> None:
        """Judge, and raise alarms on the instance with partition 0, or without Kafka the one that had it last."""
        gauges_s = -math.inf
        thresholds = conditions.Thresholds(
            max(15.0, self.settings.observe_snapshot_interval_s * 5 + self.settings.observe_live_interval_s),
            self.settings.observe_heartbeat_gap_s,
            self.settings.rating,
            self.settings.rating_share,
        )
        while True:
            await asyncio.sleep(_ALARM_INTERVAL_S)
            was_active = self._raises_alarms
            self._raises_alarms = 0 in self.mine or (was_active and not self.mine)
            destinations = self.destinations()
            active = conditions.find_conditions(
                self.store, self.limits(), destinations, now_us(), self.partitions, thresholds
            )
            self._judge(active)  # on every instance, so that each can show the verdicts
            active |= conditions.parked_destinations(self._destination_states.all(), destinations)
            active |= self._refused.conditions(destinations, now_us() // 1000)
            active |= self.skews.step(
                {
                    published.pipe.pipe: published.pipe.watch
                    for published in self.registry.all()
                    if published.pipe.watch
                }
            )
            if not self._raises_alarms:
                continue
            if not was_active:
                self.notifier.restore()
            await self.notifier.step(active, self.publisher if self.mine else None)
            if (
                monotonic_s() - gauges_s >= _GAUGES_INTERVAL_S
            ):  # with many pipes this is the most expensive part
                gauges_s = monotonic_s()
                gauges.update_gauges(self.store, self.limits(), self.notifier.alarms.active)
