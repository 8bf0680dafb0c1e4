"""Alarms that the actions of the control plane silence, and for how long."""

import pytest

from hifi.control.action import Action, ActionKind, ActionState
from hifi_observe.alarms.alarm import Alarms, AlarmSilence
from hifi_observe.verdicts.action_silences import AFTER_S, silences

SECOND = 1_000_000
DEPLOY = Action("deploy", ActionKind.DEPLOY, "service/egest", "egest-1 to 0.2.0", "", 0, 30 * SECOND, token=7)


def covered(action, key, at_s):
    return any(silence.covers(key, at_s * SECOND) for silence in silences([action], at_s * SECOND).values())


def test_a_deployment_explains_that_its_service_stands_still_and_that_events_are_late():
    assert covered(DEPLOY, ("no-progress", "", "egest"), 10)
    assert covered(DEPLOY, ("lag", "flights", ""), 10)


@pytest.mark.parametrize(
    "key", [("no-progress", "", "normalize"), ("loss", "flights", ""), ("dead-letters", "flights", "")]
)
def test_it_explains_nothing_else(key):
    assert not covered(DEPLOY, key, 10)


def test_it_explains_them_for_a_minute_after_its_end():
    ended_action = DEPLOY.ended(ActionState.DONE, 12 * SECOND, "")
    assert covered(ended_action, ("lag", "flights", ""), 12 + AFTER_S - 1)
    assert not covered(ended_action, ("lag", "flights", ""), 12 + AFTER_S)


def test_a_change_of_a_pipe_explains_nothing():
    phase = Action("rollout", ActionKind.ROLLOUT, "pipe/flights", "10 %", "", 0, 30 * SECOND, token=7)
    assert silences([phase], 0) == {}


def test_the_alarm_is_told_once_the_silence_is_over():
    alarms = Alarms()
    key = ("no-progress", "", "egest")
    alarms.silences.update(silences([DEPLOY], 0))
    alarms.step({key: "egest committed nothing"}, 0)
    (silenced_alarm,) = alarms.step({key: "egest committed nothing"}, 60 * SECOND)
    assert silenced_alarm.silenced == "deploy: egest-1 to 0.2.0"
    (change,) = alarms.step({key: "egest committed nothing"}, 90 * SECOND)
    assert change.silenced is None


def test_silences_of_people_are_told_apart():
    assert all(silence.of_action for silence in silences([DEPLOY], 0).values())
    assert not AlarmSilence("2f1c", "new broker", 0, SECOND).of_action
