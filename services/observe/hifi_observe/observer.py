"""One instance of observe: its parts, and the tasks that read, merge, publish and raise alarms."""

import asyncio

from starlette.applications import Starlette

from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.health import Health
from hifi_observe.alarms.alarm import Key
from hifi_observe.alarms.alarm_notifier import AlarmNotifier
from hifi_observe.alarms.alarm_raiser import AlarmRaiser
from hifi_observe.alarms.owner_conditions import WINDOW_S
from hifi_observe.colours.colours_view import ColoursView
from hifi_observe.kafka.dead_letter_reader import DeadLetterReader
from hifi_observe.kafka.minutes_follower import MinutesFollower
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.kafka.publication import FiguresPublication, publish_minutes
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.kafka.reconnection import reconnect
from hifi_observe.kafka.record_lookup import LookupSlots
from hifi_observe.live.live_figures import LiveFigures
from hifi_observe.minutes.merger import MinuteMerger
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.pipes import ObservedPipes
from hifi_observe.settings import ObserveSettings
from hifi_observe.skew.comparison import SkewRules
from hifi_observe.skew.skew_tracker import SkewTracker
from hifi_observe.traces.tracing import Tracing
from hifi_observe.verdicts.stability import Stability
from hifi_observe.web.alarm_answers import AlarmAnswers
from hifi_observe.web.answers import Answers
from hifi_observe.web.api import application
from hifi_observe.web.colour_answers import ColourAnswers
from hifi_observe.web.control_answers import ControlAnswers
from hifi_observe.web.minute_answers import MinuteAnswers
from hifi_observe.web.pipe_answers import PipeAnswers
from hifi_observe.web.record_answers import RecordAnswers
from hifi_observe.web.replays import Replays
from hifi_observe.web.status_answers import StatusAnswers


class Observer:
    """The parts of one instance. It keeps serving its last state while Kafka is away."""

    def __init__(self, settings: ObserveSettings, health: Health) -> None:
        self._settings = settings
        topics = settings.topics
        self.registry = PipeRegistry(settings.kafka, topics, health)
        self.store = MinuteStore()
        self.pipes = ObservedPipes(self.registry, self.store, settings.observe_heartbeat_gap_s)
        self.live = LiveFigures(self.store)
        producer = Producer(settings.kafka, settings.instance, compression="zstd")
        self.publisher = Publisher(producer, topics, lambda: self.registry.partitions or 0)
        self.tracing = Tracing(settings, self.pipes.hides_id)
        self.partitions = ObservedPartitions(
            settings, health, self.pipes, self.publisher, self.tracing.tracer
        )
        self.notifier = AlarmNotifier(settings)
        self.follower = MinutesFollower(settings, topics, self.store, self.notifier.read)
        self.alarms = AlarmRaiser(
            settings, self.store, self.pipes, self.partitions, self.notifier, self.publisher
        )
        skew_rules = SkewRules(
            settings.observe_skew_window_minutes,
            settings.observe_skew_reference_minutes,
            settings.observe_skew_events,
            settings.observe_skew_distance,
        )
        self.skews = SkewTracker(self.store, skew_rules)
        self.stability = Stability(
            settings,
            self.pipes,
            self.store,
            self.live,
            self.notifier.alarms.silences,
            lambda: self.alarms.raises,
        )
        self.colours = ColoursView(settings, self.store.fronts)
        self.lookups = LookupSlots()

    def application(self) -> Starlette:
        """The ASGI application of the API and the console."""
        settings, target = self._settings, self._settings.observe_target
        status = StatusAnswers(settings, self.store, self.live, self.partitions, self.follower, self.colours)
        alarms = AlarmAnswers(self.notifier, self.publisher)
        answers = Answers(
            status,
            PipeAnswers(self.store, self.pipes, self.live, self.skews, alarms, status, target),
            MinuteAnswers(self.store, self.pipes, self.partitions),
            ColourAnswers(self.colours, self.pipes),
            RecordAnswers(settings, self.pipes, self.partitions, self.lookups),
            alarms,
            ControlAnswers(self.stability, self.registry),
        )
        return application(settings, answers, Replays(settings, settings.topics, self.registry))

    async def start(self) -> None:
        """Load the pipes and connect; tries again until Kafka answers."""
        await self.registry.start()
        await self.publisher.start()

    async def run(self) -> None:
        """Run all tasks until cancelled. Alarms and merging start once the published minutes have been read."""
        settings = self._settings
        partitions, refused = self.publisher.partitions, self.alarms.refused
        merger = MinuteMerger(
            self.store,
            partitions,
            self.pipes.limits_of,
            self.pipes.first_minute,
            keep_h=settings.observe_keep_h,
            amend_s=settings.observe_amend_s,
            keep_lags=lambda: self.colours.exist,
        )
        figures = FiguresPublication(self.pipes, self.partitions, self.publisher)
        dead_letters = DeadLetterReader(settings, settings.topics, partitions, WINDOW_S, refused.add)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reconnect("follower", lambda: self.follower.run(partitions)))
            await self.follower.loaded.wait()
            tasks.create_task(reconnect("reader", self.partitions.run))
            tasks.create_task(
                publish_minutes(
                    merger,
                    self.store,
                    self.pipes,
                    self.partitions,
                    self.publisher,
                    settings.observe_amend_interval_s,
                )
            )
            tasks.create_task(figures.run(settings.observe_live_interval_s))
            tasks.create_task(self.live.sample(self.pipes.names))
            tasks.create_task(self.alarms.follow_destinations())
            tasks.create_task(self.alarms.run(self.stability.judge, [self._drifted_fields]))
            tasks.create_task(self.alarms.tell_owners())
            tasks.create_task(self.notifier.post())
            tasks.create_task(reconnect("dead-letters", dead_letters.run))
            if self.stability.reporter is not None:
                tasks.create_task(reconnect("verdicts", self.stability.reporter.report))
                tasks.create_task(reconnect("actions", self.stability.reporter.follow_actions))
            if settings.colours:
                tasks.create_task(reconnect("colours", self.colours.follow))
                tasks.create_task(self.colours.front.run())
                tasks.create_task(
                    self.colours.publish_front(
                        self.publisher, lambda: self.partitions.numbers, int(settings.observe_keep_h * 60)
                    )
                )

    def _drifted_fields(self) -> dict[Key, str]:
        return self.skews.step(self.pipes.watched_fields())

    async def stop(self) -> None:
        """Flush and disconnect."""
        await self.publisher.stop()
        await self.registry.stop()
        await self.tracing.stop()
