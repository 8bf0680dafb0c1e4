"""Alarms and silences."""

import uuid
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from hifi.control.principals.principal import Principal
from hifi.runtime.clock import MICROSECONDS, now_us
from hifi.runtime.http.problem import Problem
from hifi_observe.alarms.alarm import KINDS, UNREADABLE_RECORD, Alarm, AlarmJson, AlarmSilence
from hifi_observe.alarms.alarm_notifier import AlarmNotifier
from hifi_observe.kafka.publisher import Publisher

_REASON_CHARACTERS: Final = 500
_LONGEST_S: Final = 366 * 86_400
"""Of a silence."""


def _any_or_kind(kind: str) -> str:
    if kind and kind not in KINDS:
        raise ValueError(f"{kind!r} is no kind of alarm")
    return kind


class SilenceRequest(BaseModel):
    """Which alarms not to notify of, and for how long; without kind and pipe, all of them."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    reason: str
    seconds: float = Field(gt=0, le=_LONGEST_S, allow_inf_nan=False)
    kind: Annotated[str, AfterValidator(_any_or_kind), Field(json_schema_extra={"enum": ["", *KINDS]})] = ""
    pipe: str = ""


class AlarmList(TypedDict):
    """Active alarms, past alarms (newest first) and silences."""

    active: list[AlarmJson]
    past: list[AlarmJson]
    silences: list[AlarmSilence]


class AlarmAnswers:
    """Answers about alarms, and the request for a silence."""

    def __init__(self, notifier: AlarmNotifier, publisher: Publisher) -> None:
        self._notifier = notifier
        self._publisher = publisher

    def active(self) -> list[Alarm]:
        """Active alarms according to the topic `alarms`, so the same on every instance."""
        return [alarm for alarm in self._notifier.notified if alarm.ended_us is None]

    def alarms(self, principal: Principal) -> AlarmList:
        """Active alarms, past alarms and silences of the stream and of the pipes that a principal sees."""
        alarms = [
            _seen(alarm, principal)
            for alarm in self._notifier.history
            if not alarm["pipe"] or principal.sees(alarm["pipe"])
        ]
        return {
            "active": [alarm for alarm in alarms if alarm["ended_us"] is None],
            "past": [alarm for alarm in reversed(alarms) if alarm["ended_us"] is not None],
            "silences": [
                silence
                for silence in self._notifier.alarms.silences.values()
                if not silence.pipe or principal.sees(silence.pipe)
            ],
        }

    async def silence(self, request: SilenceRequest) -> AlarmSilence:
        """Publish a silence.

        Raises:
            Problem: 503, observe has not connected to Kafka yet.
        """
        start_us = now_us()
        silence = AlarmSilence(
            str(uuid.uuid4()),
            request.reason[:_REASON_CHARACTERS],
            start_us,
            start_us + int(request.seconds * MICROSECONDS),
            request.kind,
            request.pipe,
        )
        if not self._publisher.connected:
            raise Problem(503, "observe has not connected to Kafka yet; try again.", title="Not connected")
        await self._publisher.alarm(f"silence/{silence.id}", silence)
        return silence


def _seen(alarm: AlarmJson, principal: Principal) -> AlarmJson:
    """An alarm as a principal sees it: one with a limited role not the key of a record, which may name any pipe."""
    seen_alarm: AlarmJson = {**alarm, "told": alarm.get("told", [])}
    if alarm["kind"] == UNREADABLE_RECORD and not principal.sees_all:
        seen_alarm["cause"] = f"a record of {alarm['subject']} cannot be read"
    return seen_alarm
