"""Which alarms an action of the control plane explains: they are shown, but not notified, while it runs. Pure."""

from collections.abc import Iterable
from typing import Final

from hifi.control.action import Action, ActionKind
from hifi.runtime.clock import MICROSECONDS
from hifi_observe.alarms.alarm import ACTION_PREFIX, AlarmSilence

AFTER_S: Final = 60
"""Time after the end of an action in which it still explains alarms, seconds: many need a minute to start."""
_REPLACES_INSTANCES: Final = frozenset(
    {ActionKind.DEPLOY, ActionKind.RESTART, ActionKind.SCALE_IN, ActionKind.SCALE_OUT}
)
_OWN_ALARMS: Final = {"ingest": "ingest-silent", "observe": "observe-behind"}


def silences(actions: Iterable[Action], now_us: int) -> dict[str, AlarmSilence]:
    """The silences that the newest actions make, by id.

    An action that replaces instances explains that their service stands still and that events are late; a change of a
    pipe explains nothing, since its alarms are what it is judged by.

    Args:
        actions: newest first.
        now_us: microseconds since 1970 UTC.
    """
    silences_by_id: dict[str, AlarmSilence] = {}
    for action in actions:
        until_us = (action.ended_us or action.expected_end_us) + AFTER_S * MICROSECONDS
        service = action.scope.removeprefix("service/")
        if until_us <= now_us or action.kind not in _REPLACES_INSTANCES or service == action.scope:
            continue
        kinds = [("no-progress", service), ("lag", "")]
        if service in _OWN_ALARMS:
            kinds.append((_OWN_ALARMS[service], ""))
        for kind, subject in kinds:
            silence = AlarmSilence(
                f"{ACTION_PREFIX}{action.token}/{kind}",
                f"{action.actor}: {action.step}",
                action.started_us,
                until_us,
                kind,
                subject=subject,
            )
            silences_by_id[silence.id] = silence
    return silences_by_id
