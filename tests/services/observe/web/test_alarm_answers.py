"""Alarms as principals see them."""

from types import SimpleNamespace
from typing import Any

import pytest

from hifi.control.principals.principal import Principal, Role
from hifi.kafka.topic_follower import UnreadableRecord
from hifi_observe.alarms.alarm import Alarm
from hifi_observe.alarms.conditions import unreadable
from hifi_observe.web.alarm_answers import AlarmAnswers

RECORD = UnreadableRecord("s.destinations", 0, 7, b"payroll/bank", "ValueError")


@pytest.mark.parametrize(
    ("pipes", "kinds", "sees_key"),
    [((), ["unreadable-record", "loss"], True), (("orders",), ["unreadable-record"], False)],
)
def test_alarms_of_the_stream_name_no_pipe_to_those_whose_role_is_limited_to_others(
    pipes: tuple[str, ...], kinds: list[str], sees_key: bool
) -> None:
    (((kind, pipe, subject), cause),) = unreadable([RECORD]).items()
    alarms = [
        Alarm("1", kind, pipe, subject, cause, 1),
        Alarm("2", "loss", "payroll", "", "1 event of payroll", 1),
    ]
    history = [alarm.json() for alarm in alarms]
    notifier: Any = SimpleNamespace(history=history, alarms=SimpleNamespace(silences={}))
    publisher: Any = None
    answer = AlarmAnswers(notifier, publisher).alarms(
        Principal("pat", Role.VIEWER, pipes, "0" * 64, None, "ann", 0)
    )
    assert [alarm["kind"] for alarm in answer["active"]] == kinds
    assert ("payroll" in str(answer)) is sees_key
    assert RECORD.topic in answer["active"][0]["cause"]
    assert history[0]["cause"] == cause, "the history keeps it"
