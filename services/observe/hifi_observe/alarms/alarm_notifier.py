"""Notify of alarms through the topic `alarms`, the log and a signed webhook, and keep their history."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp
import orjson
from pydantic import TypeAdapter

from hifi.record.typed_body import RecordBodyReader
from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi.runtime.errors import HifiError, Misconfigured
from hifi_observe.alarms import runbooks
from hifi_observe.alarms.alarm import Alarm, AlarmJson, Alarms, AlarmSilence, Key, OwnerChannel
from hifi_observe.alarms.webhook_signature import VARIABLE, webhook_signer
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.settings import ObserveSettings

_HISTORY = 1000
_PENDING = 1000
_BACKOFF_S = (0.5, 2, 10, 30)

_SILENCE: Final = RecordBodyReader(AlarmSilence, "a silence")
_ALARM: Final = RecordBodyReader(Alarm, "an alarm")
_TOLD: Final = TypeAdapter(list[str])
"""Channels, of which a later release may have more."""

logger = log.get(__name__)


class AlarmNotifier:
    """Holds the alarms of the stream. Every instance knows them; the one with partition 0 updates and notifies."""

    def __init__(self, settings: ObserveSettings) -> None:
        """Create a notifier.

        Raises:
            Misconfigured: the webhook has no valid secret.
        """
        self.alarms = Alarms()
        self.history: deque[AlarmJson] = deque(maxlen=_HISTORY)
        """Alarms as they were notified, by start, newest last."""
        self._url = settings.observe_webhook
        self._console = settings.observe_url
        self._posts: asyncio.Queue[tuple[Alarm, str]] = asyncio.Queue(_PENDING)
        """Alarms to post, each with its `webhook-id`."""
        self._by_id: dict[str, AlarmJson] = {}
        self._webhook = webhook_signer(settings.observe_webhook_secret_file)
        if self._url and self._webhook is None:
            raise Misconfigured(f"HIFI_OBSERVE_WEBHOOK needs {VARIABLE}, to sign what is posted")

    def read(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record of the topic `alarms`: an alarm, or a silence.

        Raises:
            ValueError: it is neither.
        """
        if not key or not value:
            return
        body: Any = orjson.loads(value)
        if key.startswith(b"silence/"):
            silence = _SILENCE.of_json(body)
            self.alarms.silences[silence.id] = silence
            for old_id in [
                silence.id
                for silence in self.alarms.silences.values()
                if silence.until_us < now_us() - 86_400_000_000
            ]:
                del self.alarms.silences[old_id]
            return
        alarm = _ALARM.of_json(body)
        _TOLD.validate_python(body.get("told", []))
        self._remember(body | asdict(alarm))

    @property
    def notified(self) -> list[Alarm]:
        """Every alarm in the history, by start."""
        fields = Alarm.__dataclass_fields__
        return [
            Alarm(**{name: value for name, value in alarm.items() if name in fields})  # type: ignore[arg-type]
            for alarm in self.history
        ]

    @property
    def told(self) -> list[tuple[Alarm, list[OwnerChannel]]]:
        """The active alarms, each with the channels by which the owner of its pipe was notified."""
        return [
            (alarm, list(self._by_id.get(alarm.id, alarm.json()).get("told", ())))
            for alarm in self.alarms.active
        ]

    async def owner_told(self, alarm: Alarm, channels: list[OwnerChannel], publisher: Publisher) -> None:
        """Record the channels by which the owner of an alarm's pipe was notified."""
        body: AlarmJson = {**self._by_id.get(alarm.id, alarm.json()), "told": channels}
        await self._publish(body, publisher)
        # The alarm may have ended meanwhile.
        self._remember({**self._by_id.get(alarm.id, body), "told": channels})

    def restore(self) -> None:
        """Continue the alarms that had started; call it after reading the topic, when this instance takes over."""
        self.alarms.restore(alarm for alarm in self.notified if alarm.ended_us is None)

    async def step(self, holding: Mapping[Key, str], publisher: Publisher | None) -> None:
        """Update all alarms and notify of starts and ends; without Kafka (no publisher) by log and webhook only."""
        step_us = now_us()
        for alarm in self.alarms.step(holding, step_us):
            body, alarm_state = alarm.json(), _state(alarm)
            webhook_id = f"{alarm.id}/{alarm_state}"
            if alarm.id in self._by_id and alarm.ended_us is None:
                # Receivers may drop an id that they know, and the start may have been posted before the silence.
                webhook_id += f"/{step_us}"
            self._remember(body)
            is_silenced = alarm.silenced is not None
            log_event = logger.info if alarm.ended_us is not None or is_silenced else logger.error
            log_event(
                "alarm-silenced" if alarm.ended_us is None and is_silenced else f"alarm-{alarm_state}",
                **{name: value for name, value in self._linked(body).items() if name != "summary"},
            )
            if not is_silenced and self._webhook is not None:
                with contextlib.suppress(asyncio.QueueFull):
                    self._posts.put_nowait((alarm, webhook_id))
            await self._publish(body, publisher)

    async def _publish(self, body: AlarmJson, publisher: Publisher | None) -> None:
        if publisher is not None:
            with contextlib.suppress(HifiError, TimeoutError):
                async with asyncio.timeout(5):
                    await publisher.alarm(body["id"], body)

    async def post(self) -> None:
        """Post alarms to the webhook, one after the other, until cancelled."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
            while True:
                alarm, webhook_id = await self._posts.get()
                for wait_s in (*_BACKOFF_S, None):
                    if await self._posted(session, alarm, webhook_id):
                        break
                    if wait_s is None:
                        logger.error("webhook-abandoned", alarm=alarm.id)
                        break
                    await asyncio.sleep(wait_s)

    async def _posted(self, session: aiohttp.ClientSession, alarm: Alarm, webhook_id: str) -> bool:
        assert self._webhook is not None
        content = {"type": f"hifi.alarm.{_state(alarm)}", "data": self._linked(alarm.json())}
        body = orjson.dumps(content).decode()
        sent_at = datetime.now(UTC)
        headers = {
            "content-type": "application/json",
            "webhook-id": webhook_id,
            "webhook-timestamp": str(int(sent_at.timestamp())),
            "webhook-signature": self._webhook.sign(webhook_id, sent_at, body),
        }
        try:
            async with session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
                if answer.status < 300:
                    return True
                logger.warning("webhook-failed", status=answer.status)
        except Exception as error:  # noqa: BLE001 - whatever the URL breaks, the next alarm must be posted
            logger.warning("webhook-failed", error=repr(error))
        return False

    def _linked(self, body: AlarmJson) -> AlarmJson:
        """With the runbook as a URL, for readers outside the console."""
        return {**body, "runbook": runbooks.link(body["kind"], self._console)}

    def _remember(self, body: AlarmJson) -> None:
        previous_body = self._by_id.get(body["id"])
        if previous_body is not None:
            previous_body.update(body)
            return
        if len(self.history) == _HISTORY:
            self._by_id.pop(self.history[0]["id"], None)
        self.history.append(body)
        self._by_id[body["id"]] = body


def _state(alarm: Alarm) -> str:
    return "ended" if alarm.ended_us is not None else "started"
