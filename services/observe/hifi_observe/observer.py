"""One instance of observe: the stream that it reads, its judgement, and the answers of its API and console."""

import asyncio

from starlette.applications import Starlette

from hifi.control.principals.audit_log import AuditLog
from hifi.control.principals.gate import Gate
from hifi.control.principals.oidc.login import configured_login
from hifi.kafka.last_uses import LastUses
from hifi.runtime.health import Health
from hifi.runtime.signed_document import SigningKey
from hifi_observe.alarms.alarm_notifier import AlarmNotifier
from hifi_observe.judge import StreamJudge
from hifi_observe.kafka.audit_writer import AuditWriter
from hifi_observe.kafka.key_usage_follower import KeyUsageFollower
from hifi_observe.kafka.principals_copy import TopicCopy
from hifi_observe.kafka.reconnection import reconnect
from hifi_observe.kafka.record_lookup import LookupSlots
from hifi_observe.observed_colours import ObservedColours
from hifi_observe.settings import ObserveSettings
from hifi_observe.stream import ObservedStream
from hifi_observe.web.answers import answers_of
from hifi_observe.web.api import application
from hifi_observe.web.replays import Replays


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
        self._colours = ObservedColours(settings, self.stream, health)
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
        answers = answers_of(
            self._settings,
            self.stream,
            self.judge,
            self._colours,
            lookups=self.lookups,
            key_usage=self._key_usage,
            report_key=self._report_key,
            stopping=self.stopping,
        )
        return application(
            self._settings,
            answers,
            Replays(self._settings, self._settings.topics, self.stream.registry),
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
            self.stream.run(tasks, lambda: self._colours.view.exist, self.lookups)
            self.judge.run(tasks)
            self._colours.run(tasks)

    async def stop(self) -> None:
        """Flush and disconnect."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._audit.stop()
        await self.stream.stop()
