"""One instance of observe: the stream that it reads, its judgement, and the answers of its API and console."""

import asyncio
from functools import partial

from starlette.applications import Starlette

from hifi.control.principals.audit_log import AuditLog
from hifi.control.principals.gate import Gate
from hifi.control.principals.oidc.login import configured_login
from hifi.kafka.last_uses import LastUses
from hifi.runtime.health import Health
from hifi.runtime.signed_document import SigningKey
from hifi_observe.alarms.alarm_notifier import AlarmNotifier
from hifi_observe.colours.colours_history import ColoursHistory
from hifi_observe.colours.colours_view import ColoursView
from hifi_observe.colours.history_publication import HistoryPublication
from hifi_observe.judge import StreamJudge
from hifi_observe.kafka.audit_writer import AuditWriter
from hifi_observe.kafka.key_usage_follower import KeyUsageFollower
from hifi_observe.kafka.principals_copy import TopicCopy
from hifi_observe.kafka.reconnection import reconnect
from hifi_observe.kafka.record_lookup import LookupSlots
from hifi_observe.settings import ObserveSettings
from hifi_observe.stream import ObservedStream
from hifi_observe.web.alarm_answers import AlarmAnswers
from hifi_observe.web.answers import Answers
from hifi_observe.web.api import application
from hifi_observe.web.colour_answers import ColourAnswers
from hifi_observe.web.control_answers import ControlAnswers
from hifi_observe.web.minute_answers import MinuteAnswers
from hifi_observe.web.pipe_answers import PipeAnswers
from hifi_observe.web.record_answers import RecordAnswers
from hifi_observe.web.replays import Replays
from hifi_observe.web.report_answers import ReportAnswers
from hifi_observe.web.status_answers import StatusAnswers
from hifi_observe.web.usage_answers import UsageAnswers
from hifi_observe.web.watermark_answers import WatermarkAnswers


class Observer:
    """The parts of one instance. It keeps serving its last state while Kafka is away.

    Attributes:
        stopping: set when event streams must end.
    """

    def __init__(self, settings: ObserveSettings, health: Health) -> None:
        self._settings = settings
        self._health = health
        self.stopping = asyncio.Event()
        notifier = AlarmNotifier(settings)
        self.stream = ObservedStream(settings, health, notifier.read)
        self.judge = StreamJudge(settings, self.stream, notifier)
        self.lookups = LookupSlots()
        self._colours = ColoursView(settings, self.stream.store.fronts)
        self._history = ColoursHistory(self.stream.store)
        topics, control_kafka = settings.principal_topics, settings.control_bootstrap
        self.principals = TopicCopy(control_kafka, settings.instance, topics.principals, health)
        self._audit = AuditWriter(control_kafka, settings.instance, topics)
        self._token_uses = LastUses()
        self._key_usage = KeyUsageFollower(settings)
        key_file = settings.observe_report_key_file
        self._report_key = SigningKey.read(key_file) if key_file is not None else None
        self._tasks: list[asyncio.Task[None]] = []

    def application(self) -> Starlette:
        """The ASGI application of the API and the console."""
        settings, stream, judge, colours = self._settings, self.stream, self.judge, self._colours
        store, pipes, live, partitions = stream.store, stream.pipes, stream.live, stream.partitions
        status = StatusAnswers(settings, store, live, partitions, stream.follower, colours)
        alarms = AlarmAnswers(judge.notifier, stream.publisher)
        answers = Answers(
            status,
            PipeAnswers(store, pipes, live, judge.skews, alarms, status, settings.observe_target),
            MinuteAnswers(store, pipes, partitions),
            ColourAnswers(colours, pipes, self._history),
            RecordAnswers(settings, pipes, partitions, self.lookups),
            alarms,
            ControlAnswers(judge.stability, stream.registry),
            UsageAnswers(store, partitions, self._key_usage, settings.observe_keep_h),
            ReportAnswers(settings, store, pipes, partitions, self._history, self._report_key),
            WatermarkAnswers(stream.watermarks, pipes, colours, self.stopping),
        )
        return application(
            settings,
            answers,
            Replays(settings, settings.topics, stream.registry),
            Gate(self.principals, self._token_uses),
            AuditLog(self._audit.write),
            configured_login(),
        )

    @property
    def task(self) -> asyncio.Task[None] | None:
        """Follows the pipes."""
        return self.stream.registry.task

    async def start(self) -> None:
        """Load the pipes and connect; tries again until Kafka answers."""
        self._tasks = [
            asyncio.create_task(self.principals.run(), name="follow the principals"),
            asyncio.create_task(self._token_uses.run(self._audit.write_uses), name="write uses of tokens"),
        ]
        await self.stream.start()

    async def run(self) -> None:
        """Run all tasks until cancelled. Alarms and merging start once the published minutes have been read."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reconnect("key-usage", self._key_usage.run, self._health))
            await self.stream.load(tasks)
            self.stream.run(tasks, lambda: self._colours.exist, self.lookups)
            self.judge.run(tasks)
            if self._settings.colours:
                self._run_colours(tasks)

    def _run_colours(self, tasks: asyncio.TaskGroup) -> None:
        partitions, keep_minutes = self.stream.partitions, int(self._settings.observe_keep_h * 60)
        stream, health = self.stream, self._health
        publish = partial(
            self._colours.publish_front, stream.publisher, lambda: partitions.numbers, keep_minutes
        )
        tasks.create_task(reconnect("colours", self._colours.follow, health))
        tasks.create_task(reconnect("front", self._colours.front.run, health))
        tasks.create_task(reconnect("refusals", publish, health))
        history = HistoryPublication(
            self._settings,
            self._colours,
            self._history,
            stream.store,
            stream.pipes,
            partitions,
            stream.publisher,
        )
        tasks.create_task(reconnect("history", history.run, health))

    async def stop(self) -> None:
        """Flush and disconnect."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._audit.stop()
        await self.stream.stop()
