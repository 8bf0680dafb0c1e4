"""Report verdicts to the control plane, and silence the alarms that its actions explain."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from hifi.control.action import Action
from hifi.control.action_right import ActionLog
from hifi.control.verdict import PUBLISH_S, Verdict
from hifi.kafka.clients import connect
from hifi.kafka.producer import Producer
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi_observe.alarms.alarm import AlarmSilence
from hifi_observe.settings import ObserveSettings
from hifi_observe.verdicts import action_silences

_ACTIONS_INTERVAL_S: Final = 1.0


class VerdictReporter:
    """Writes verdicts to the topic `health` and reads the topic `actions`.

    Args:
        settings: with a control plane.
        verdicts: returns the verdicts to report; none on an instance that does not raise alarms.
        silences: of this instance; those that actions make are kept up to date in it.
    """

    def __init__(
        self,
        settings: ObserveSettings,
        verdicts: Callable[[], list[Verdict]],
        silences: dict[str, AlarmSilence],
    ) -> None:
        self._settings = settings
        self._topics = settings.control_topics
        self._verdicts = verdicts
        self._silences = silences
        self.actions: list[Action] = []
        """The newest actions of the control plane, newest first."""

    async def report(self) -> None:
        """Report the verdicts every `PUBLISH_S` seconds until cancelled.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka is unreachable.
        """
        producer = Producer(self._settings.control_bootstrap, self._settings.instance)
        await connect(producer.start)
        try:
            while True:
                records = [
                    Record(verdict.scope.encode(), verdict.encode(), []) for verdict in self._verdicts()
                ]
                if records:
                    await producer.send_and_wait(self._topics.health, 0, records)
                await asyncio.sleep(PUBLISH_S)
        finally:
            await producer.stop(timeout_s=1)

    async def follow_actions(self) -> None:
        """Keep the silences up to date until cancelled.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka is unreachable.
        """
        log = ActionLog(self._settings.control_bootstrap, self._topics.actions, self._settings.instance)
        try:
            await log.start()
            while True:
                self.actions = log.history.newest_first
                self._replace(action_silences.silences(self.actions, now_us()))
                await asyncio.sleep(_ACTIONS_INTERVAL_S)
                await log.catch_up()
        finally:
            await log.stop()

    def _replace(self, silences: Mapping[str, AlarmSilence]) -> None:
        for old_id in [
            silence.id
            for silence in self._silences.values()
            if silence.of_action and silence.id not in silences
        ]:
            del self._silences[old_id]
        self._silences.update(silences)
