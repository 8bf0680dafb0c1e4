"""Judges the stream on one instance: alarms, notices to owners, verdicts and drift of watched fields."""

import asyncio
from functools import partial

from hifi.kafka.certificate_reports import ReportedCertificates
from hifi.kafka.topics import ControlTopics
from hifi.runtime.clock import MICROSECONDS, now_us
from hifi_observe.alarms import conditions
from hifi_observe.alarms.alarm import Key
from hifi_observe.alarms.alarm_notifier import AlarmNotifier
from hifi_observe.alarms.alarm_raiser import AlarmRaiser
from hifi_observe.alarms.owner_conditions import WINDOW_S
from hifi_observe.kafka.certificates_follower import follow_certificates
from hifi_observe.kafka.dead_letter_reader import DeadLetterReader
from hifi_observe.kafka.reconnection import reconnect
from hifi_observe.settings import ObserveSettings
from hifi_observe.skew.comparison import SkewRules
from hifi_observe.skew.skew_tracker import SkewTracker
from hifi_observe.stream import ObservedStream
from hifi_observe.verdicts.stability import Stability


class StreamJudge:
    """Judges the stream every second.

    Args:
        settings: of the service.
        stream: to judge.
        notifier: of alarms.
    """

    def __init__(self, settings: ObserveSettings, stream: ObservedStream, notifier: AlarmNotifier) -> None:
        self._settings = settings
        self._stream = stream
        self.notifier = notifier
        self._certificate_reports = ReportedCertificates()
        self._alarms = AlarmRaiser(
            settings, stream.store, stream.pipes, stream.partitions, notifier, stream.publisher
        )
        skew_rules = SkewRules(
            settings.observe_skew_window_minutes,
            settings.observe_skew_reference_minutes,
            settings.observe_skew_events,
            settings.observe_skew_distance,
        )
        self.skews = SkewTracker(stream.store, skew_rules)
        self.stability = Stability(
            settings,
            stream.pipes,
            stream.store,
            stream.live,
            notifier.alarms.silences,
            lambda: self._alarms.raises,
        )

    def run(self, tasks: asyncio.TaskGroup) -> None:
        """Start the tasks that judge and notify; call it once the published minutes have been read."""
        settings, partitions = self._settings, self._stream.publisher.partitions
        health = self._stream.health
        dead_letters = DeadLetterReader(
            settings, settings.topics, partitions, WINDOW_S, self._alarms.refused.add
        )
        tasks.create_task(reconnect("destinations", self._alarms.follow_destinations, health))
        sources = [self._drifted_fields, self._lookups, self._certificates]
        raise_alarms = partial(self._alarms.run, self.stability.judge, sources)
        tasks.create_task(reconnect("alarms", raise_alarms, health))
        tasks.create_task(reconnect("owners", self._alarms.tell_owners, health))
        tasks.create_task(reconnect("webhook", self.notifier.post, health))
        tasks.create_task(reconnect("dead-letters", dead_letters.run, health))
        for bootstrap, topic in self._certificate_topics():
            follow = partial(
                follow_certificates, bootstrap, settings.instance, topic, self._certificate_reports
            )
            tasks.create_task(reconnect("certificates", follow, health))
        if self.stability.reporter is not None:
            tasks.create_task(reconnect("verdicts", self.stability.reporter.report, health))
            tasks.create_task(reconnect("actions", self.stability.reporter.follow_actions, health))

    def _certificate_topics(self) -> list[tuple[str, str]]:
        """Kafka and name of each topic with reports: of the services, and of the front of two colours."""
        settings = self._settings
        topics = [(settings.kafka, settings.topics.certificates)]
        if settings.colours:
            topics.append((settings.control_bootstrap, ControlTopics(settings.colours).certificates))
        return topics

    def _certificates(self) -> dict[Key, str]:
        return conditions.certificates(self._certificate_reports, now_us() / MICROSECONDS)

    def _lookups(self) -> dict[Key, str]:
        return conditions.lookups(self._stream.partitions.lookup_problems, self._stream.pipes.names())

    def _drifted_fields(self) -> dict[Key, str]:
        return self.skews.step(self._stream.pipes.watched_fields())
